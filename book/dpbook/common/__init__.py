"""What chapters share.

``datasets``, ``batches`` -- data; ``records`` -- what long runs have given;
``models``, ``resnet`` -- networks;
``loop`` -- the training loop;
``plots``, ``boxes``, ``matrices``, ``shares``, ``lanes`` -- pictures;
``live`` -- a figure with controls, in a cell; ``show`` -- listings;
``passes`` -- forward and backward on ranks, timed;
``engine_pairs`` -- our engines compared with PyTorch's, on ranks;
``rounding`` -- a bound of differences that are rounding;
``checks``, ``verdict`` -- exercises.
"""
