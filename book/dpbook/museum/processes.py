"""Bugs of processes that talk to each other."""

from collections import deque
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dpbook.batch_norm import programs
from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import sim
from dpkit.plans import ring
from dpkit.plans.blocking import Call, calls, check_blocking

THEIRS = "PyTorch's"
Orders = Sequence[Sequence[Call]]


def first_sends(p: int) -> Orders:
    """List what each rank of a ring does: in each step, send and receive."""
    return [
        [
            call
            for number, step in enumerate(ring(p).steps)
            for call in (
                Call(sends=True, message=step[rank], step=number),
                Call(sends=False, message=step[rank - 1], step=number),
            )
        ]
        for rank in range(p)
    ]


def in_turns(p: int) -> Orders:
    """List them so that some receive while others send."""
    return calls(ring(p))


def sends_that_block(version: Version) -> None:
    """Check sends that end when they are received, with 2 to 9 ranks."""
    for p in range(2, 10):
        check_blocking(version(p))


def sends_that_do_not(version: Version) -> None:
    """Leave the message of a send in a buffer and go on."""
    orders = [deque(order) for order in version(5)]
    buffers = set()
    moved = True
    while moved:
        moved = False
        for order in orders:
            while order and (order[0].sends or order[0][1:] in buffers):
                buffers.add(order.popleft()[1:])
                moved = True
    claim(not any(orders), "a rank waits for ever")


def result_of_all_reduce(count: Tensor) -> Tensor:
    """Add up the counts of all ranks, and take what the call returns."""
    return torch.tensor(dist.all_reduce(count))


def reduced_in_place(count: Tensor) -> Tensor:
    """Add up the counts of all ranks, and take the tensor."""
    dist.all_reduce(count)
    return count


def run_the_listing(version: Version) -> None:
    """Run it, in a process group of one rank."""
    (total,) = sim.launch(version, 1, torch.tensor(3.0))
    claim(total.item() == 3, f"the sum is wrong (sum: {total.item()})")


def others_at_a_barrier(version: Version) -> None:
    """The other rank waits at a barrier until rank 0 has evaluated."""
    found, right = counts(version, trains_on=False)
    claim(found == right, f"a wrong count (count: {found}, right: {right})")


def others_train_on(version: Version) -> None:
    """The other rank goes on with the next training step."""
    found, right = counts(version, trains_on=True)
    claim(found == right, f"a wrong count (count: {found}, right: {right})")


def counts(version: Version, trains_on: bool) -> tuple[int, int]:
    """Count on two ranks by a version, and by the bare module."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    task = trains_on, net, torch.randn(6, 4), torch.arange(6) % 3
    found, right = (
        sim.launch(programs.train_and_count, 2, THEIRS, count, *task)[0]
        for count in (version, programs.rank_0_by_module)
    )
    return found, right


EXHIBITS = [
    Exhibit(
        "ring that hangs",
        wrong=first_sends,
        right=in_turns,
        check=sends_that_block,
        careless=sends_that_do_not,
    ),
    Exhibit(
        "returned nothing",
        wrong=result_of_all_reduce,
        right=reduced_in_place,
        check=run_the_listing,
    ),
    Exhibit(
        "evaluation alone",
        wrong=programs.rank_0_alone,
        right=programs.summed_counts,
        check=others_at_a_barrier,
        careless=others_train_on,
    ),
]
