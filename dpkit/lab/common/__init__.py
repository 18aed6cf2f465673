"""What three chapters or more share.

``datasets``, ``batches`` -- data; ``models``, ``resnet`` -- networks;
``loop`` -- the training loop;
``engines`` -- PyTorch's own pipelines and split layers;
``plots``, ``boxes``, ``ticks`` -- pictures; ``show`` -- listings;
``traffic`` -- a counter of messages; ``checks``, ``verdict`` -- exercises.
"""
