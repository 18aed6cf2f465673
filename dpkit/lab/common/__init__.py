"""What three chapters or more share.

``datasets``, ``batches`` -- data; ``models``, ``resnet`` -- networks;
``loop`` -- the training loop;
``plots``, ``boxes`` -- pictures; ``show`` -- listings;
``traffic`` -- a counter of messages; ``checks``, ``verdict`` -- exercises.
"""
