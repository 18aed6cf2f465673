"""Move tensors by a plan.

The same list of messages that is checked, counted and replayed in
``dpkit.plans`` is run here, from device to device.

Each flat buffer is cut into the chunks of the plan, the first ones larger by
one element. In a plan of 3 chunks, for buffers of 7 elements::

    element of a buffer    0 1 2 | 3 4 | 5 6
    chunk                    0      1     2

    message "source 0, target 1, chunk 2, adds":
        x = flats[0][5:7], sent to devices[1];  flats[1][5:7] += x
"""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor

from dpkit.machine import has_streams
from dpkit.plans import Message, Plan, Step, num_elements
from dpkit.plans.plan import bounds
from dpkit.streams import send
from dpkit.units import check_known

# What each op does with the elements that are there and those that arrive.
ADD: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda mine, x: mine.add_(x),
    "mean": lambda mine, x: mine.add_(x),  # divided in the end
    "product": lambda mine, x: mine.mul_(x),
    "max": lambda mine, x: torch.maximum(mine, x, out=mine),
    "min": lambda mine, x: torch.minimum(mine, x, out=mine),
}
# The second cache of a core, its own, has this or more in most CPUs.
CACHE_BYTES = 2**20


@torch.no_grad()
def run(plan: Plan, flats: Sequence[Tensor], op: str = "sum") -> None:
    """Send the messages of a plan, in place.

    ``flats[r]``, of shape (n,) and contiguous, lies on ``devices[r]``. ``op``
    is what adding is: "sum", "product", "max" or "min". For "mean" the caller
    has to divide the sums.

    Example:
        >>> from dpkit.plan_runner import run
        >>> from dpkit.plans.rings import ring
        >>> flats = [torch.full((5,), r, device=d)
        ...          for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> run(ring(3), flats)
        >>> flats[2]
        tensor([3, 3, 3, 3, 3], device='sim:2')
    """
    n = flats[0].numel()
    for step in plan.steps:
        full = [m for m in step if num_elements(plan, m, n)]
        _run_step(plan, full, flats, op)


def _run_step(
    plan: Plan, step: Step, flats: Sequence[Tensor], op: str
) -> None:
    """Send all messages of a step, then change what has been sent."""
    crossing = _crossing(step)
    pending = []
    for m in step:
        x = view(plan, range(m.first, m.stop), flats[m.source])
        target = flats[m.target]
        if m in crossing and x.device == target.device:
            x = x.clone()  # send() copies nothing on one device
        later = m.adds or m in crossing
        into = None if later else view(plan, m.landing, target)
        pending.append(send(x, target.device, into))
    arrived = [tensor.wait() for tensor in pending]
    for m, x in zip(step, arrived):
        if m.adds:
            ADD[op](view(plan, m.landing, flats[m.target]), x)
        elif m in crossing:
            view(plan, m.landing, flats[m.target]).copy_(x)


def check_op(op: str, dtype: torch.dtype) -> None:
    """Raise ValueError unless the op is known and defined for the dtype."""
    check_known("op", op, ADD)
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"integers have no exact mean (dtype: {dtype})")
    if op in ("max", "min") and dtype.is_complex:
        raise ValueError(f"complex numbers have no order (dtype: {dtype})")


def run_in_pieces(plan: Plan, flats: Sequence[Tensor], op: str) -> None:
    """Run a plan on CPUs a piece at a time; elsewhere by :func:`run`.

    The results are the same bits. In this plan each chunk has to land in its
    own place.

    Example:
        >>> from dpkit.plan_runner import run_in_pieces
        >>> from dpkit.plans.rings import ring
        >>> flats = [torch.full((5,), r) for r in range(3)]
        >>> run_in_pieces(ring(3), flats, "sum")
        >>> flats[2]
        tensor([3, 3, 3, 3, 3])
    """
    if any(has_streams(flat.device) for flat in flats):
        run(plan, flats, op)
        return
    # The pieces of all ranks fit into the caches together. So each number is
    # read from memory once and written once, however often it is sent. Three
    # ranks of float32, two threads: 2 MiB / (3 · 4 bytes) = 174,762 elements.
    cache = CACHE_BYTES * torch.get_num_threads()
    most = max(1, cache // (len(flats) * flats[0].element_size()))
    for number in range(plan.num_chunks):
        steps = _steps_of_chunk(plan, number)
        parts = [view(plan, range(number, number + 1), x) for x in flats]
        for pieces in zip(*[part.split(most) for part in parts]):
            for step in steps:
                _run_in_memory(step, pieces, op)


def _steps_of_chunk(plan: Plan, number: int) -> list[Step]:
    """Return the messages that carry a chunk, step by step."""
    steps = [
        [m for m in step if m.first <= number < m.stop] for step in plan.steps
    ]
    return [step for step in steps if step]


def _run_in_memory(step: Step, pieces: Sequence[Tensor], op: str) -> None:
    """Do what a step does to a piece of a chunk, in the memory of a CPU."""
    # A rank reads what another one holds, without a copy on the way. Only
    # what is changed in this step too is copied first: 0 → 1 while 1 → 0.
    changed = {m.target for m in step}
    sent = [
        pieces[m.source].clone() if m.source in changed else pieces[m.source]
        for m in step
    ]
    for m, x in zip(step, sent):
        mine = pieces[m.target]
        if m.adds:
            ADD[op](mine, x)
        else:
            mine.copy_(x)


def view(plan: Plan, chunks: range, flat: Tensor) -> Tensor:
    """Return the chunks of a plan in the flat buffer of a rank."""
    start, end = bounds(flat.numel(), plan.num_chunks, chunks)
    return flat[start:end]


def _crossing(step: Step) -> set[Message]:
    """Return the messages that send what another one changes, and those."""
    # What is sent must have left before what arrives is put in its place.
    # Rank 0 sends chunk 0 to rank 1, which sends chunk 0 to rank 0: both.
    # Rank 0 sends chunk 0 to rank 1, which sends chunk 1 to rank 0: neither.
    found = set()
    for one, other in product(step, step):
        sent = range(one.first, one.stop)
        changed = other.landing
        overlap = sent.start < changed.stop and changed.start < sent.stop
        if one.source == other.target and overlap:
            found |= {one, other}
    return found
