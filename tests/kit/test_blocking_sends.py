"""Orders of sends and receives that block, run by real processes."""

import pytest
import torch
import torch.distributed as dist

from dpkit.plan_runner import ADD, view
from dpkit.plans.algorithms import ALLREDUCE, allreduce_plan
from dpkit.plans.blocking import calls, check_blocking
from dpkit.plans.direct import pairwise
from dpkit.plans.rings import ring
from dpkit.processes import Workers, rank_device


def tensors(p, num_elements):
    generator = torch.Generator().manual_seed(p)
    return [
        torch.randint(-9, 9, (num_elements,), generator=generator)
        for _ in range(p)
    ]


def send_and_wait(tensor, target):
    """Send, and do not return before it has been received."""
    dist.send(tensor, target)
    dist.recv(torch.empty(1), target)


def receive_and_tell(tensor, source):
    dist.recv(tensor, source)
    dist.send(torch.ones(1), source)


def run_as_rank(plan, flat, order, send=dist.send, receive=dist.recv):
    """Send and receive this rank's messages; change a buffer after a step."""
    for number in range(len(plan.steps)):
        received = []
        for sends, message, step in order[dist.get_rank()]:
            if step != number:
                continue
            if sends:
                chunks = range(message.first, message.stop)
                send(view(plan, chunks, flat), message.target)
            else:
                x = torch.empty_like(view(plan, message.landing, flat))
                receive(x, message.source)
                received.append((message, x))
        for message, x in received:
            mine = view(plan, message.landing, flat)
            if message.adds:
                ADD["sum"](mine, x)
            else:
                mine.copy_(x)
    return flat.cpu()


def results(num_elements):
    """Return what every algorithm leaves on this rank."""
    rank, p = dist.get_rank(), dist.get_world_size()
    found = {}
    for name in ALLREDUCE:
        plan = allreduce_plan(name, p, p if name == "hierarchical" else None)
        x = tensors(p, num_elements)[rank].to(rank_device())
        found[name] = run_as_rank(plan, x, calls(plan))
    y = torch.arange(2 * p, device=rank_device()) + 100 * rank
    return found, run_as_rank(pairwise(p), y, calls(pairwise(p)))


def ring_with_sends_that_block(order):
    """Run a ring in which a send ends when its receiver has it."""
    rank, p = dist.get_rank(), dist.get_world_size()
    x = tensors(p, 7)[rank]
    return run_as_rank(ring(p), x, order, send_and_wait, receive_and_tell)


def send_first(plan):
    """Order what ranks do as a ring does that sends first."""
    return [
        sorted(order, key=lambda call: (call.step, not call.sends))
        for order in calls(plan)
    ]


def test_the_order_of_the_next_test_is_one_that_blocks():
    check_blocking(calls(ring(3)))
    with pytest.raises(ValueError, match="the ranks wait for each other"):
        check_blocking(send_first(ring(3)))


@pytest.mark.parametrize(
    ("p", "backend"),
    [
        pytest.param(3, "gloo", marks=pytest.mark.slow),
        pytest.param(4, "gloo", marks=pytest.mark.slow),
        pytest.param(2, "nccl", marks=pytest.mark.cuda),
    ],
)
def test_every_rank_has_the_sum(need_gpus, p, backend):
    if backend == "nccl":
        need_gpus(p)
    with Workers(p, backend) as workers:
        for rank, (found, y) in enumerate(workers.run(results, 37)):
            assert found.keys() == ALLREDUCE.keys()
            for x in found.values():
                assert torch.equal(x, torch.stack(tensors(p, 37)).sum(0))
            own = torch.tensor([2 * rank, 2 * rank + 1])
            given = [own + 100 * other for other in range(p)]
            assert torch.equal(y, torch.cat(given))
        if p == 3:
            total = torch.stack(tensors(p, 7)).sum(0)
            fn = ring_with_sends_that_block
            for x in workers.run(fn, calls(ring(p))):
                assert torch.equal(x, total)
            with pytest.raises(TimeoutError):
                workers.run(fn, send_first(ring(p)), timeout_seconds=3)
