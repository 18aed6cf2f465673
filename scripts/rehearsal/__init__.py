"""A rehearsal of GPUs on the double of CUDA.

``parts`` -- what is run, as a list.
``graders`` -- what exercises are graded by, where values lie on a GPU.
``printed`` -- compares what cells print with their stored outputs.
``calibrate``, ``evaluate``, ``report`` -- calibration, evaluation on all GPUs
and the GPU report, so small that the double is quick.
``exempt.toml`` -- the cells whose outputs differ by right, and why.
"""
