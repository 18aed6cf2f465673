"""A whole collective in one call, as a library does it.

By hand, a ring of eight devices is 112 copies and 56 additions, each launched
from Python. A library launches one kernel on each device, and the kernels
send to each other (``plans.library_costs``)::

    on GPUs                  NCCL, through ``torch.cuda.nccl``
    on simulated devices     what a plan computes, charged as one kernel each
    elsewhere                the plan, message by message

"Elsewhere" is a CPU, or a device that has several ranks; on GPUs also dtypes
that NCCL does not have, and parts of different sizes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.cuda import nccl

from dpkit.plan_runner import run_in_pieces
from dpkit.plans import Plan, library_seconds
from dpkit.plans.library_costs import passes_a_port
from dpkit.sim.devices import simulation
from dpkit.sim.memory import keep_values, lose_values, may_keep, values_of
from dpkit.sim.operators import check_machine_of

LIBRARY = "library"  # the name of this algorithm
# NCCL's numbers of what adding is; for "mean" the caller divides the sums.
NCCL_OPS = {"sum": 0, "mean": 0, "product": 1, "max": 2, "min": 3}
NCCL_DTYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
}


def perform(
    algorithm: str,
    operation: str,
    plan: Plan,
    flats: Sequence[Tensor],
    *,
    op: str = "sum",
    root: int = 0,
) -> None:
    """Send the messages of a plan, or have a library do what it does.

    Args:
        algorithm: "library" for the library; any other name, for the plan.
        operation: "allreduce", "reduce_scatter", "allgather", "broadcast" or
            "reduce": what the library is asked for.
        plan: Messages that do the operation.
        flats: ``flats[r]``, of shape (n,) and contiguous, lies on
            ``devices[r]``; those that receive are changed in place.
        op: "sum", "product", "max" or "min". For "mean" the caller has to
            divide the sums.
        root: The rank that a broadcast starts from and a reduce ends at.

    Example:
        >>> from dpkit.library import LIBRARY, perform
        >>> from dpkit.plans.rings import ring
        >>> flats = [torch.full((5,), r, device=d)
        ...          for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> perform(LIBRARY, "allreduce", ring(3), flats)
        >>> flats[2]
        tensor([3, 3, 3, 3, 3], device='sim:2')
    """
    kind = _kind(flats) if algorithm == LIBRARY else ""
    if kind == "sim":
        _run_simulated(operation, plan, flats, op)
        _mark_changed(plan, flats)
    elif kind == "cuda" and _fits(operation, flats):
        NCCL[operation](flats, NCCL_OPS[op], root)
        _mark_changed(plan, flats)
    elif operation in ("reduce_scatter", "allgather"):
        run_in_pieces(plan, flats, op)
    else:
        # As one piece of all: this view takes a host some time, too.
        run_in_pieces(plan, [flat[0 : len(flat)] for flat in flats], op)


def _kind(flats: Sequence[Tensor]) -> str:
    """Return the kind of the devices, if each of several has one rank."""
    kinds = {flat.device.type for flat in flats}
    alone = 1 < len(flats) == len({flat.device for flat in flats})
    return kinds.pop() if alone and len(kinds) == 1 else ""


def _run_simulated(
    operation: str, plan: Plan, flats: Sequence[Tensor], op: str
) -> None:
    """Compute on the tensors that hold the values; charge one kernel each."""
    check_machine_of(list(flats))
    simulated: list[Any] = list(flats)
    held = [x.backing for x in simulated]
    if held[0].is_meta:
        _run_without_values(plan, held, op)
    else:
        run_in_pieces(plan, held, op)
    if simulation.races is not None:
        simulation.races.met(operation, flats, _changed(plan))
    devices = [x.device.index for x in flats]
    _charge_library(operation, flats[0].nbytes, devices)


def _charge_library(operation: str, n: int, devices: Sequence[int]) -> None:
    """Charge for an operation of n bytes on each of the devices."""
    clock = simulation.whole_clock
    seconds = library_seconds(operation, devices, n, clock.cluster)
    moved = round(passes_a_port(operation, len(devices), n))
    with clock.lock:
        clock.collective(
            devices, name=operation, seconds=seconds, num_bytes=moved
        )


def perform_alike(
    operation: str, flat: Tensor, devices: Sequence[int]
) -> None:
    """Charge for an operation where one device stands for all of them.

    ``flat`` lies on the first of the devices. Nothing is computed.
    """
    if flat.device.type != "sim" or len(devices) == 1:
        return
    check_machine_of([flat])
    if simulation.races is not None:
        simulation.races.met(operation, [flat], [0])
    _charge_library(operation, flat.nbytes, devices)


def _run_without_values(plan: Plan, held: Sequence[Tensor], op: str) -> None:
    """Compute on small integers, where some ranks have their values."""
    # A plan does to these flags what it does to values: a sum is known if
    # both terms are, a copy if its source is.
    #
    #               before           after "rank 0 to rank 1, adds"
    #     rank 0    3 1   ✓ ✓        3 1   ✓ ✓
    #     rank 1    · ·   ✗ ✗        · ·   ✗ ✗
    found = [values_of(x) for x in held]
    if all(given is None for given in found):
        return
    values = []
    known = []
    for x, given in zip(held, found):
        blank = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
        values.append(blank if given is None else given)
        flag = given is not None
        known.append(torch.full(x.shape, flag, device="cpu"))
    run_in_pieces(plan, values, op)
    run_in_pieces(plan, known, "min")
    for rank in _changed(plan):
        if not known[rank].all():
            lose_values(held[rank])
        elif found[rank] is None and may_keep(held[rank]):
            keep_values(held[rank], values[rank])


def _changed(plan: Plan) -> set[int]:
    """Return the ranks whose tensors a plan writes to."""
    return {m.target for m in plan.messages}


def _mark_changed(plan: Plan, flats: Sequence[Tensor]) -> None:
    """Note for autograd which tensors are not what they were."""
    changed = [flats[rank] for rank in _changed(plan)]
    torch.autograd.graph.increment_version(changed)


def _fits(operation: str, flats: Sequence[Tensor]) -> bool:
    """Return whether NCCL takes these tensors as they are."""
    equal = operation not in ("reduce_scatter", "allgather")
    equal = equal or len(flats[0]) % len(flats) == 0
    return equal and flats[0].dtype in NCCL_DTYPES


def _parts(flats: Sequence[Tensor]) -> list[Tensor]:
    """Return part r of the tensor of rank r: NCCL then works in place."""
    return [flat.chunk(len(flats))[r] for r, flat in enumerate(flats)]


NCCL: dict[str, Callable[[Sequence[Tensor], int, int], None]] = {
    "allreduce": lambda flats, op, root: nccl.all_reduce(flats, op=op),
    "reduce_scatter": lambda flats, op, root: nccl.reduce_scatter(
        flats, _parts(flats), op=op
    ),
    "allgather": lambda flats, op, root: nccl.all_gather(_parts(flats), flats),
    "broadcast": lambda flats, op, root: nccl.broadcast(flats, root),
    "reduce": lambda flats, op, root: nccl.reduce(flats, root=root, op=op),
}
