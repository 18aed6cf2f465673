"""A trace that looks for races finds those between ranks, and no others."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

import dpkit
from tests.runs import pipelines_on_ranks
from tests.sim.test_races import SIZE, races_of


def all_reduce(right):
    x = torch.ones(SIZE, device="sim")
    work = dist.all_reduce(x, async_op=True)
    if right:
        work.wait()
    return x + 1


@pytest.mark.parametrize("algorithm", ["ring", "library"])
def test_a_rank_that_does_not_wait_for_a_collective(algorithm):
    with dpkit.sim.machine(hosts="per_device"):
        launch = partial(dpkit.sim.launch, algorithm=algorithm)
        races = races_of(launch, all_reduce, 3, False)
        assert {race.second.device for race in races} == {
            "sim:0",
            "sim:1",
            "sim:2",
        }
        for race in races:
            # The last rank to call issues the collective, for all.
            uses = {use.what: use for use in (race.first, race.second)}
            assert uses["reads"].code == "return x + 1"
            assert "all_reduce(x, async" in uses["writes"].code
        assert races_of(launch, all_reduce, 3, True) == []


def all_gather(right):
    x = torch.ones(SIZE, device="sim")
    parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, x, async_op=True)
    if right:
        work.wait()
    return parts[1] + 1


def test_a_rank_that_does_not_wait_for_what_is_put_into_a_list():
    with dpkit.sim.machine(hosts="per_device"):
        assert len(races_of(dpkit.sim.launch, all_gather, 3, False)) == 3
        assert races_of(dpkit.sim.launch, all_gather, 3, True) == []


@pytest.mark.parametrize("algorithm", ["ring", "library"])
def test_a_rank_that_frees_what_is_sent_is_right(algorithm):
    """PyTorch's group keeps it, and so does this one."""

    def program():
        dist.all_reduce(torch.ones(SIZE, device="sim"), async_op=True)
        torch.ones(SIZE, device="sim")

    with dpkit.sim.machine(hosts="per_device"):
        launch = partial(dpkit.sim.launch, algorithm=algorithm)
        assert races_of(launch, program, 3) == []


def host_reads_on_a_rank():
    x = torch.ones(SIZE, device="sim").to("cpu", non_blocking=True)
    return x.sum()


def test_the_host_of_a_rank_is_looked_at():
    with dpkit.sim.machine(hosts="per_device"):
        races = races_of(dpkit.sim.launch, host_reads_on_a_rank, 2)
    assert [race.first.device for race in races] == ["sim:0", "sim:1"]
    for race in races:
        assert (race.second.device, race.second.name) == ("host", "sum")


@pytest.mark.parametrize("name", ["1F1B", "ZBVZeroBubble"])
def test_pipelines_of_pytorch_have_no_races(name):
    with dpkit.sim.machine(hosts="per_device"):
        program = partial(pipelines_on_ranks.pipeline, name)
        assert races_of(partial(dpkit.sim.launch, program, 2)) == []
