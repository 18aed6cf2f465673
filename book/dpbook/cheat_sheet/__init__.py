"""What the cheat sheet shows.

``minimal_ddp`` -- the smallest program for torchrun.
"""
