"""What the chapter ``three-ways`` draws and runs.

``pictures`` -- who has what of a network, and what is sent, which other
pages show, too;
``data_parallel``, ``pipeline``, ``split_layers`` -- a program of each way, for
torchrun;
``running`` -- the programs, on simulated GPUs and in real processes.
"""
