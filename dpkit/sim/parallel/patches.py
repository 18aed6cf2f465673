"""What is changed in torch for ``torch.nn.parallel``, in one table."""

import sys
from collections.abc import Iterator

import torch
import torch.cuda.comm
from torch import nn
from torch.nn.parallel import _functions, comm

from dpkit.sim.changes.change import Patch, added, wrapped
from dpkit.sim.parallel import copy_streams, simulated_calls
from dpkit.sim.parallel.copies import OF_COMM
from dpkit.sim.parallel.in_turn import apply_in_turn

# Functions have the names of these modules in torch.nn.parallel.
DATA_PARALLEL = sys.modules["torch.nn.parallel.data_parallel"]
_PARALLEL_APPLY = sys.modules["torch.nn.parallel.parallel_apply"]
_IN_PYTHON = (
    *("broadcast", "broadcast_coalesced", "reduce_add"),
    *("reduce_add_coalesced", "scatter", "gather"),
)
_FUNCTIONS = (
    *(_functions.Broadcast, _functions.ReduceAddCoalesced),
    *(_functions.Scatter, _functions.Gather),
)


def parallel_patches() -> Iterator[Patch]:
    """Yield the changes."""
    for name, new in OF_COMM.items():
        wrap = simulated_calls.in_place_of(new)
        if hasattr(torch._C, name):
            yield wrapped(torch._C, name, wrap)
        else:
            yield added(torch._C, name, wrap(None))
    for owner in (comm, torch.cuda.comm):
        for name in _IN_PYTHON:
            yield wrapped(owner, name, simulated_calls.choosing)
    for function in _FUNCTIONS:
        yield wrapped(function, "forward", simulated_calls.choosing_static)
    yield wrapped(_functions, "_get_stream", copy_streams.copying, ["device"])
    for owner in (_PARALLEL_APPLY, DATA_PARALLEL, nn.parallel):
        yield wrapped(
            owner, "parallel_apply", simulated_calls.in_place_of(apply_in_turn)
        )
    for owner in (DATA_PARALLEL, nn.parallel):
        yield wrapped(owner, "data_parallel", simulated_calls.choosing)
    yield wrapped(nn.DataParallel, "__init__", simulated_calls.init_chosen)
    yield wrapped(nn.DataParallel, "forward", simulated_calls.forward_checked)
    kind = "_get_available_device_type"
    yield wrapped(DATA_PARALLEL, kind, simulated_calls.kind_for_module, [])
    yield wrapped(torch._utils, kind, simulated_calls.kind_of_numbers, [])
    yield wrapped(
        torch.cuda.nccl,
        "is_available",
        simulated_calls.nccl_found,
        ["tensors"],
    )
