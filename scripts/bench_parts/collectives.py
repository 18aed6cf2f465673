"""An allreduce in one process, against the loop that it cannot beat.

Four ranks add three times and copy three times, whichever algorithm says who
to whom. The loop does so by hand, to pieces that stay in a core's cache, in
memory that is there.
"""

from collections.abc import Callable, Sequence

import torch
from in_turns import time_in_turns

import dpkit
from bench_parts.ratios import Ratio, over
from bench_parts.rows import CPU_TIME, Row, by_cpu_time, wall

NAMES = ("star", "tree", "ring", "halving_doubling")
COPY = "a copy of 64 MiB"
LOOP = "the loop by hand"
# The elements of a rank for each thread: 4 ranks · 4 bytes · 2**16 are 1 MiB.
PIECE = 2**16


def in_one_thread() -> Row:
    """64 MiB on each of 4 CPU devices, in one thread."""
    return _row(CPU_TIME, by_cpu_time)


def in_all_threads() -> Row:
    """The same, in as many threads as there are cores."""
    return _row(wall(), time_in_turns)


def _row(clock: str, timed: Callable[..., dict[str, list[float]]]) -> Row:
    tensors = [torch.zeros(16 * 2**20) for _ in range(4)]
    one, other, *_ = tensors

    def by(algorithm: str) -> Callable[[], None]:
        return lambda: dpkit.allreduce(tensors, "sum", algorithm)

    ways: dict[str, Callable[[], object]] = {
        LOOP: lambda: _loop(tensors),
        COPY: lambda: one.copy_(other),
    }
    ways |= {name: by(name) for name in NAMES}
    title = "allreduce of 64 MiB on 4 CPU devices in one process"
    ratios = [
        Ratio(
            f"speed of {name}, of the loop's", over(LOOP, name), at_least=0.9
        )
        for name in NAMES
    ]
    return Row(title, clock, timed(ways, count=2), ratios)


def _loop(tensors: Sequence[torch.Tensor]) -> None:
    """Add all to the first, and copy it over the others, piece by piece."""
    size = PIECE * torch.get_num_threads()
    for pieces in zip(*[tensor.split(size) for tensor in tensors]):
        total, *others = pieces
        for x in others:
            total.add_(x)
        for x in others:
            x.copy_(total)
