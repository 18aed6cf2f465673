"""What the chapter ``three-ways`` alone needs.

``pictures`` -- who has what of a network, and what is sent;
``data_parallel``, ``pipeline``, ``split_layers`` -- a program of each way, for
torchrun;
``running`` -- the programs, on simulated GPUs and in real processes.
"""
