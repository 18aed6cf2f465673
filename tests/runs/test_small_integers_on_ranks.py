"""Small integers keep their numbers where ranks send them."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.sim.memory.small_integers import has_values
from tests.runs import pipelines_on_ranks as pipelines
from tests.runs.engines_on_ranks import ENGINES, own_device
from tests.sim.test_small_integers import refused
from tests.weekly import few_of


def launch_on_meta(program, k=2, *args, algorithm="ring"):
    with dpkit.sim.machine(backing="meta", hosts="per_device"):
        return dpkit.sim.launch(program, k, *args, algorithm=algorithm)


ALGORITHMS = "ring", "library"
alike = pytest.mark.parametrize("algorithm", ALGORITHMS)


def counts_of(rank, known):
    """Return what a rank counted: numbers, or what comes from values."""
    x = torch.tensor([rank + 1, 10 * rank + 2], device=own_device())
    return x if known else x.copy_(torch.randn(2, 5, device="sim").argmax(1))


def gathered(x):
    outs = x.new_empty(4)
    dist.all_gather_into_tensor(outs, x)
    return outs


def gathered_again(x):
    """What is gathered into has lost its numbers before."""
    outs = x.new_empty(4).copy_(torch.randn(4, 2, device="sim").argmax(1))
    dist.all_gather_into_tensor(outs, x)
    return outs


def gathered_in_place(x):
    """What is given is a part of what is gathered into."""
    outs = x.new_empty(4)
    own = outs.chunk(2)[dist.get_rank()]
    own.copy_(x)
    dist.all_gather_into_tensor(outs, own)
    return outs


def gathered_in_a_list(x):
    outs = [x.new_empty(2), x.new_empty(2)]
    dist.all_gather(outs, x)
    return torch.cat(outs)


def summed(x):
    dist.all_reduce(x)
    return x


def greatest(x):
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x


def from_first(x):
    dist.broadcast(x, 0)
    return x


def at_first(x):
    dist.reduce(x, 0)
    return x if dist.get_rank() == 0 else torch.zeros_like(x)


def scattered_sum(x):
    out = x.new_empty(1)
    dist.reduce_scatter_tensor(out, x)
    return out


def exchanged(x):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


def passed_on(x):
    out = torch.empty_like(x)
    ops = [dist.P2POp(dist.isend, x, 1 - dist.get_rank())]
    ops.append(dist.P2POp(dist.irecv, out, 1 - dist.get_rank()))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


# Operation -> which ranks know what comes out if only rank 0 knows its own.
COLLECTIVES = {
    gathered: [],
    gathered_again: [],
    gathered_in_place: [],
    gathered_in_a_list: [],
    summed: [],
    greatest: [],
    from_first: [0, 1],
    at_first: [1],  # which takes nothing
    scattered_sum: [],
    exchanged: [],
    passed_on: [1],
}


def collective(operation, knowing):
    rank = dist.get_rank()
    out = operation(counts_of(rank, rank in knowing))
    if has_values(out.backing):
        return out.tolist()
    refused(out.tolist)
    return None


@alike
@pytest.mark.parametrize("operation", COLLECTIVES)
def test_ranks_know_what_all_who_give_it_know(operation, algorithm):
    expected = dpkit.sim.launch(collective, 2, operation, (0, 1))
    given = {"algorithm": algorithm}
    assert launch_on_meta(collective, 2, operation, (0, 1), **given) == (
        expected
    )
    found = launch_on_meta(collective, 2, operation, (0,), **given)
    knowing = COLLECTIVES[operation]
    assert found == [expected[r] if r in knowing else None for r in (0, 1)]


def replicas():
    layers = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)
    model = DistributedDataParallel(
        nn.Sequential(*layers).to(own_device()), bucket_cap_mb=1e-5
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(6, 4, device=own_device())).sum().backward()
        optimizer.step()
    return model.module[1].num_batches_tracked.item()


@alike
def test_ddp_counts_its_parameters_and_builds_buckets_again(algorithm):
    assert launch_on_meta(replicas, 3, algorithm=algorithm) == [4, 4, 4]


def experts(give):
    """Send rows to the ranks that a router chooses, and back."""
    rank, device = dist.get_rank(), own_device()
    x = torch.randn(12, 8, device=device)
    choice = nn.Linear(8, 2).to(device)(x).argmax(1)
    ones = torch.ones_like(choice)
    counts = torch.zeros(2, dtype=torch.long, device=device)
    counts.scatter_add_(0, choice, ones)
    if give:
        counts.copy_(torch.tensor([5 + rank, 7 - rank]))
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    sent, received = counts.tolist(), arriving.tolist()
    rows = x.new_empty(sum(received), 8)
    dist.all_to_all_single(rows, x[choice.argsort()], received, sent)
    back = torch.empty_like(x)
    dist.all_to_all_single(back, rows, sent, received)
    return received


@alike
def test_a_router_sends_as_many_rows_as_it_is_given(algorithm):
    given = {"algorithm": algorithm}
    assert launch_on_meta(experts, 2, True, **given) == [[5, 6], [7, 6]]
    with pytest.raises(RuntimeError, match="come from values"):
        launch_on_meta(experts, 2, False, **given)


def spans(backing, program, *args, algorithm="ring"):
    with (
        dpkit.sim.machine(backing=backing, hosts="per_device"),
        dpkit.sim.trace() as timeline,
    ):
        dpkit.sim.launch(program, 2, *args, algorithm=algorithm)
    return timeline.spans


# Parameters stay on the CPU, which PyTorch takes for those without memory; and
# the statistics of layer norm in bfloat16 have another type on "meta".
WITH_NUMBERS = {"fsdp_offloaded", "fsdp_mixed"}
# The engines call the same collectives whatever the algorithm: of those that
# a library has, DDP and FSDP call all.
RUNS = [(name, "ring") for name in sorted(ENGINES.keys() - WITH_NUMBERS)]
RUNS += [("ddp", "library"), ("fsdp", "library")]


HERE = [("ddp", "ring"), ("fsdp", "library"), ("tensor_parallel", "ring")]


@pytest.mark.parametrize(("name", "algorithm"), few_of(RUNS, HERE))
def test_engines_take_the_time_that_they_take_with_numbers(name, algorithm):
    found, expected = (
        spans(backing, ENGINES[name], algorithm=algorithm)
        for backing in ("meta", "cpu")
    )
    assert found == expected


# The other schedules take parameters in an order that changes from run to run.
IN_ORDER = {"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS"}


@pytest.mark.parametrize(
    "name", few_of(pipelines.SCHEDULES, ["1F1B", "ZBVZeroBubble"])
)
def test_pipelines_vote_and_find_their_shapes(name):
    found, expected = (
        spans(backing, pipelines.pipeline, name) for backing in ("meta", "cpu")
    )
    assert len(found) == len(expected)
    if name in IN_ORDER:
        assert found == expected
