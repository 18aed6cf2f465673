"""Collectives by sends and receives, in real processes."""

import pytest
import torch
import torch.distributed as dist

from dpkit import point_to_point
from dpkit.processes import Workers, rank_device
from dpkit.theory.collectives import blocking
from dpkit.theory.collectives.algorithms import ALLREDUCE
from dpkit.theory.collectives.blocking import calls
from dpkit.theory.collectives.direct import pairwise
from dpkit.theory.collectives.rings import ring


def tensors(p, shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(p)
    return [
        torch.randint(-9, 9, shape, generator=generator).to(dtype)
        for _ in range(p)
    ]


def results(shapes, op):
    """Return what every algorithm leaves on this rank, for each shape."""
    rank, p = dist.get_rank(), dist.get_world_size()
    found = {}
    for name in ALLREDUCE:
        sizes = [g for g in range(1, p + 1) if p % g == 0]
        for g in sizes if name == "hierarchical" else [None]:
            for shape in shapes:
                x = tensors(p, shape)[rank].to(rank_device())
                point_to_point.allreduce_by_sends(x, op, name, g)
                found[name, g, shape] = x.cpu()
    return found


def views_and_exchanges():
    """Return a transposed tensor after a sum, and one after an exchange."""
    rank, p = dist.get_rank(), dist.get_world_size()
    device = rank_device()
    x = tensors(p, (3, 5))[rank].to(device).t()
    point_to_point.allreduce_by_sends(x, algorithm="ring")
    y = torch.arange(2 * p, device=device) + 100 * rank
    point_to_point.run_as_rank(pairwise(p), y)
    return x.cpu(), y.cpu()


def send_and_wait(tensor, dst):
    """Send, and do not return before it has been received."""
    SEND(tensor, dst)
    RECEIVE(torch.empty(1), dst)


def receive_and_tell(tensor, src):
    RECEIVE(tensor, src)
    SEND(torch.ones(1), src)


SEND, RECEIVE = dist.send, dist.recv


def with_sends_that_block(order):
    """Run a ring in which a send ends when its receiver has it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    dist.send, dist.recv = send_and_wait, receive_and_tell
    if order == "send first":
        point_to_point.calls = send_first
    x = tensors(p, (7,))[rank]
    try:
        point_to_point.allreduce_by_sends(x)
    finally:
        dist.send, dist.recv = SEND, RECEIVE
        point_to_point.calls = calls
    return x


def send_first(plan):
    """Order what ranks do as a ring does that sends first."""
    return [
        sorted(order, key=lambda call: (call.step, not call.sends))
        for order in calls(plan)
    ]


def test_the_order_of_the_next_test_is_one_that_blocks():
    blocking.check_blocking(calls(ring(3)))
    with pytest.raises(ValueError, match="the ranks wait for each other"):
        blocking.check_blocking(send_first(ring(3)))


@pytest.mark.parametrize(
    ("p", "backend"),
    [
        pytest.param(3, "gloo", marks=pytest.mark.slow),
        pytest.param(4, "gloo", marks=pytest.mark.slow),
        pytest.param(2, "nccl", marks=pytest.mark.cuda),
    ],
)
def test_every_rank_has_the_sum(forked_ranks, need_gpus, p, backend):
    if backend == "nccl":
        need_gpus(p)
    shapes = [(0,), (1,), (p - 1,), (2 * p + 1,), (3, 37)]
    with Workers(p, backend) as workers:
        for op in ("sum", "max"):
            for found in workers.run(results, shapes, op):
                assert len(found) >= len(set(shapes)) * len(ALLREDUCE)
                for (_, _, shape), x in found.items():
                    stacked = torch.stack(tensors(p, shape))
                    right = stacked.sum(0) if op == "sum" else stacked.amax(0)
                    assert torch.equal(x, right)
        total = torch.stack(tensors(p, (3, 5))).sum(0).t()
        for rank, (x, y) in enumerate(workers.run(views_and_exchanges)):
            assert torch.equal(x, total)
            own = torch.tensor([2 * rank, 2 * rank + 1])
            given = [own + 100 * other for other in range(p)]
            assert torch.equal(y, torch.cat(given))
        if p == 3:
            total = torch.stack(tensors(p, (7,))).sum(0)
            for x in workers.run(with_sends_that_block, "ours"):
                assert torch.equal(x, total)
            with pytest.raises(TimeoutError):
                workers.run(
                    with_sends_that_block, "send first", timeout_seconds=3
                )


def refused():
    errors = []
    for act in (
        lambda: point_to_point.run_as_rank(ring(3), torch.ones(2)),
        lambda: point_to_point.allreduce_by_sends(torch.ones(2), "avg"),
        lambda: point_to_point.allreduce_by_sends(
            torch.ones(2), algorithm="rung"
        ),
    ):
        try:
            act()
        except ValueError as error:
            errors.append(str(error))
    return errors


@pytest.mark.slow
def test_what_is_refused(forked_ranks):
    with Workers(1, "gloo") as workers:
        (errors,) = workers.run(refused)
    assert "(plan: 3, group: 1)" in errors[0]
    assert "(op: 'avg', known: sum" in errors[1]
    assert "(algorithm: 'rung', known: star" in errors[2]
