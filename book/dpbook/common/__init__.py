"""What chapters share.

``datasets``, ``batches`` -- data; ``records`` -- what long runs have given;
``models``, ``resnet`` -- networks;
``loop`` -- the training loop;
``graph_launches`` -- the launches of kernels in a step, as a CUDA graph;
``plots``, ``boxes``, ``matrices``, ``shares``, ``lanes`` -- pictures;
``live`` -- a figure with controls, in a cell; ``show`` -- listings;
``passes`` -- forward and backward on ranks, timed;
``engine_pairs`` -- our engines compared with PyTorch's, on ranks;
``simulated_and_measured`` -- the same work on the clock and on a GPU;
``terminal`` -- commands, run as in a terminal;
``torchrun`` -- programs, started once for each device; ``forked_torchrun`` --
    the same by forks, which start sooner;
``rounding`` -- a bound of differences that are rounding;
``checks``, ``required_messages`` -- exercises.

``dpkit.launch`` and ``dpkit.sim.launch`` start ranks; they are in the library.
"""
