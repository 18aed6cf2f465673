"""Six times of a program for GPUs, which knows nothing of simulated ones.

python -m dpkit run --gpus 4 -m dpbook.devices.six_times
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SIZE = 4000  # of the matrices


def squares(x: Tensor) -> list[Tensor]:
    """Multiply a matrix by itself, fifty times."""
    return [x.mm(x) for _ in range(50)]


def to_cpu(tensors: Sequence[Tensor], non_blocking: bool = False) -> None:
    """Copy tensors to the CPU."""
    for tensor in tensors:
        tensor.to("cpu", non_blocking=non_blocking)


def seconds_of(work: Callable[[], object], waits: bool = True) -> float:
    """Return what a clock shows after some work.

    Args:
        work: It launches operations.
        waits: Whether to wait for the first GPU before the clock is read.
    """
    start = time.time()
    work()
    if waits:
        torch.cuda.synchronize()
    return time.time() - start


def six_times(size: int = SIZE) -> list[float]:
    """Return six times, in seconds.

    Fifty products on the first GPU, not waited for, and waited for; fifty on
    each GPU, in turn and at once; copies of fifty results to new memory; and
    fifty products with copies that are not waited for.
    """
    count = torch.cuda.device_count()
    xs = [torch.rand(size, size, device=f"cuda:{i}") for i in range(count)]

    def in_turn() -> None:
        for i in range(count):
            squares(xs[i])
            torch.cuda.synchronize(i)

    def at_once() -> None:
        for i in range(count):
            squares(xs[i])
        for i in range(count):
            torch.cuda.synchronize(i)

    torch.cuda.synchronize()
    not_waited_for = seconds_of(lambda: squares(xs[0]), waits=False)
    torch.cuda.synchronize()
    waited_for = seconds_of(lambda: squares(xs[0]))
    turns, together = seconds_of(in_turn), seconds_of(at_once)
    results = squares(xs[0])
    torch.cuda.synchronize()
    copies = seconds_of(lambda: to_cpu(results))
    both = seconds_of(lambda: to_cpu(squares(xs[0]), non_blocking=True))
    return [not_waited_for, waited_for, turns, together, copies, both]


if __name__ == "__main__":
    print("seconds:", *(f"{seconds:.6f}" for seconds in six_times()))
