"""What the cheat sheet shows.

``minimal_ddp`` -- the smallest program for torchrun;
``sharded_adam`` -- Adam whose state lies in shards.
"""
