"""What three chapters or more share.

``datasets``, ``batches`` -- data; ``models``, ``resnet`` -- networks;
``loop`` -- the training loop;
``plots``, ``boxes`` -- pictures; ``show`` -- listings;
``beside`` -- our engines beside PyTorch's, on ranks;
``traffic`` -- a counter of messages; ``checks``, ``verdict`` -- exercises.
"""
