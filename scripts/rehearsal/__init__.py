"""A rehearsal of GPUs on the double of CUDA.

``parts`` -- what is run, as a list.
``printed`` -- compares what cells print with their stored outputs.
``exempt.toml`` -- the cells whose outputs differ by right, and why.
"""
