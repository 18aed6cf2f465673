"""What DTensor lacks for simulated devices, while ranks run."""

from contextlib import ExitStack

from torch.distributed.tensor import _random

from dpkit.runs.ranks.shard_random import ShardTracker
from dpkit.sim.changes import replaced


def draw_on_shards(stack: ExitStack) -> None:
    """Have DTensor draw on shards, until a stack ends."""
    ours = replaced(_random, "OffsetBasedRNGTracker", ShardTracker)
    stack.callback(ours.apply())
    _random._rng_tracker = None  # one of other devices, if there is any
