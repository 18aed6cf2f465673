"""What DTensor lacks for simulated devices, while ranks run."""

from contextlib import ExitStack
from typing import Any

from torch.distributed.tensor import DTensor, _random

from dpkit.ranks.shard_attention import HANDLERS
from dpkit.ranks.shard_random import ShardTracker
from dpkit.sim.patching import replaced

_dispatcher: Any = DTensor._op_dispatcher


def compute_on_shards(stack: ExitStack) -> None:
    """Have DTensor draw and attend on shards, until a stack ends.

    The stack puts back what DTensor had: see ``ThreadState``.
    """
    ours = replaced(_random, "OffsetBasedRNGTracker", ShardTracker)
    stack.callback(ours.apply())
    _random._rng_tracker = None  # one of other devices, if there is any
    _dispatcher._custom_op_handlers.update(HANDLERS)
