"""The simulated tensor, and what happens when an operation runs on it.

``tensor`` -- the way of an operation: begin here;
``charge`` -- what it costs on the clock;
``dispatch_rule`` -- how torch finds the way of an operation;
``backward`` -- backward on one thread, and its errors;
``behaviour`` -- how a tensor is made, printed, copied, pickled and read;
``storages``, ``modules``, ``initialization`` -- what torch does with such
    tensors elsewhere;
``used_parameters`` -- a list that DDP sends in C++: which ones were used.
"""

from dpkit.sim.tensors.backward import (
    in_backward,
    let_traced_threads_go_on,
    raise_nothing,
    raise_outside,
)
from dpkit.sim.tensors.behaviour import plain
from dpkit.sim.tensors.modules import has_to_be_opened
from dpkit.sim.tensors.storages import move_storage
from dpkit.sim.tensors.tensor import SimTensor
from dpkit.sim.tensors.used_parameters import on_device

__all__ = [
    "SimTensor",
    "has_to_be_opened",
    "in_backward",
    "let_traced_threads_go_on",
    "move_storage",
    "on_device",
    "plain",
    "raise_nothing",
    "raise_outside",
]
