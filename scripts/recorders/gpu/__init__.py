"""What can only be timed on a GPU.

``steps`` -- where the time of a training step goes;
``convolutions``, ``attention`` -- the rates of such kernels;
``stopwatch`` -- the seconds of a call, by the GPU's own events.
"""
