"""Move tensors by a plan.

The same list of messages that is checked, counted and replayed in
``dpkit.theory`` sends here, from device to device, what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from dpkit.machine import has_streams
from dpkit.ports import Arrival, send
from dpkit.theory.collectives.plans import (
    Message,
    Plan,
    Step,
    bounds,
    num_elements,
)

# How each op puts what has arrived to what is there, in place.
ADD: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda mine, x: mine.add_(x),
    "mean": lambda mine, x: mine.add_(x),  # divided in the end
    "max": lambda mine, x: torch.maximum(mine, x, out=mine),
    "min": lambda mine, x: torch.minimum(mine, x, out=mine),
}
# On a CPU all ranks' pieces of a buffer should fit into its cache together:
# then each number comes from memory once, and goes back once.
CACHE_BYTES = 16 * 2**20


@torch.no_grad()
def run(plan: Plan, flats: Sequence[Tensor], op: str = "sum") -> None:
    """Send the messages of a plan, in place.

    Args:
        plan: What to send.
        flats: Tensors of shape (n,), contiguous; ``flats[r]`` lies on
            ``devices[r]``.
        op: What adding is: "sum", "max" or "min"; "mean" adds, and the
            division is left to the caller.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.plan_runner import run
        >>> from dpkit.theory.collectives.algorithms import ring
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
    """Send all messages of a step, then take in what arrives."""
    apart = _in_each_others_way(step)
    arrivals = [_send(plan, m, flats, m in apart) for m in step]
    arrived = [arrival.open() for arrival in arrivals]
    for message, x in zip(step, arrived):
        if message.adds:
            ADD[op](_landing(plan, message, flats), x)
        elif message in apart:
            _landing(plan, message, flats).copy_(x)


def check_op(op: str, dtype: torch.dtype) -> None:
    """Raise ValueError unless numbers of this dtype can be put together so."""
    if op not in ADD:
        raise ValueError(f"unknown op (op: {op!r}, known: {', '.join(ADD)})")
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"integers have no exact mean (dtype: {dtype})")
    if op in ("max", "min") and dtype.is_complex:
        raise ValueError(f"complex numbers have no order (dtype: {dtype})")


def pieces(flats: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Cut what lies on a CPU into pieces that fit into its cache.

    For plans that treat every element alike, such as an allreduce: run on one
    piece after another, they do the same.

    Args:
        flats: p tensors of shape (n,).

    Yields:
        p views, of the same place of each.
    """
    most = max(1, CACHE_BYTES // (len(flats) * flats[0].element_size()))
    if any(has_streams(flat.device) for flat in flats):
        most = max(1, len(flats[0]))
    for start in range(0, len(flats[0]), most):
        yield [flat[start : start + most] for flat in flats]


def _send(
    plan: Plan, message: Message, flats: Sequence[Tensor], apart: bool
) -> Arrival:
    """Send a message: to where it lands, or apart from it."""
    chunks = range(message.first, message.stop)
    x = view(plan, chunks, flats[message.source])
    target = flats[message.target].device
    if apart:
        return send(x.clone() if x.device == target else x, target)
    into = None if message.adds else _landing(plan, message, flats)
    return send(x, target, into)


def _landing(plan: Plan, message: Message, flats: Sequence[Tensor]) -> Tensor:
    """Return what a message changes at its target."""
    return view(plan, message.landing, flats[message.target])


def view(plan: Plan, chunks: range, flat: Tensor) -> Tensor:
    """Return the chunks of a plan in the flat buffer of a rank."""
    start, end = bounds(flat.numel(), plan.num_chunks, chunks)
    return flat[start:end]


def _in_each_others_way(step: Step) -> set[Message]:
    """Return the messages that send what another one changes, and those.

    Two ranks that exchange their whole buffers do: what is sent must have
    left before what arrives is put in its place.
    """
    found = set()
    for one in step:
        for other in step:
            if one.source == other.target:
                chunks = range(one.first, one.stop)
                if _overlap(chunks, other.landing):
                    found |= {one, other}
    return found


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop
