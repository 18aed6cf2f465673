"""PyTorch's own engines on ranks: as one device does it, without races."""

import os
from functools import cache
from itertools import product

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

import dpkit
from tests.runs import pipelines_on_ranks as pipelines
from tests.runs import train_anywhere
from tests.runs.engines_on_ranks import (
    ENGINES,
    TOLERANCES,
    descent,
    loss_of,
    own_device,
    own_rows,
    sharded,
    train,
    transformer,
    whole,
    words,
)
from tests.weekly import few_of

RANKS = [int(k) for k in os.environ.get("DPKIT_RANKS", "2 4").split()]


def few_on_four(names, here):
    """Return all names on all ranks: on two each, on more those of here."""
    cases = list(product(names, RANKS))
    return few_of(cases, [(n, k) for n, k in cases if k == 2 or n in here])


@cache
def one_device(steps=3):
    return whole(train(transformer(), *words(), steps=steps))


def worst(found, expected):
    """Return the largest difference of two dicts of tensors."""
    assert found.keys() == expected.keys()
    differences = [(found[n] - expected[n]).abs().max() for n in expected]
    return max(map(float, differences))


def test_training_moves_all_parameters():
    """Else an engine that does nothing would pass."""
    before, after = whole(transformer()), one_device()
    for name, p in before.items():
        assert (p - after[name]).abs().max() > 1e-3, name


def launched(program, k, *args, races, num_known=0):
    """Let ranks run a program, as users do or under a search for races.

    The search follows every tensor, and must not change a value. It finds the
    ``num_known`` races that the program has.
    """
    if not races:
        return dpkit.sim.launch(program, k, *args)
    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.sim.trace(races=True) as timeline,
    ):
        found = dpkit.sim.launch(program, k, *args)
    assert len(timeline.races) == num_known, timeline.races
    return found


@pytest.mark.parametrize(
    ("name", "k"), few_on_four(ENGINES, ["ddp", "fsdp_hybrid"])
)
def test_three_steps_end_as_one_device_does(name, k):
    """With races looked for on four ranks, which "fsdp_hybrid" needs."""
    for parameters in launched(ENGINES[name], k, races=k > 2):
        most = TOLERANCES.get(name, 1e-10)
        assert worst(parameters, one_device()) < most


@pytest.mark.parametrize(("name", "k"), few_on_four(pipelines.SCHEDULES, []))
def test_each_schedule_ends_as_one_device_does(name, k):
    """With races looked for on two ranks, which takes less."""
    found = launched(
        pipelines.pipeline,
        k,
        name,
        races=k == 2,
        num_known=pipelines.num_races(name),
    )
    together = {n: p for parameters in found for n, p in parameters.items()}
    assert sum(map(len, found)) == len(together)  # each stage is on one rank
    assert worst(together, pipelines.on_one_device(k)) < 1e-10


def test_an_engine_takes_the_same_time_again_and_sends():
    runs = []
    for _ in range(2):
        with (
            dpkit.sim.machine(hosts="per_device"),
            dpkit.sim.trace() as timeline,
        ):
            dpkit.sim.launch(ENGINES["fsdp"], 3)
        runs.append(timeline.spans)
    assert runs[0] == runs[1]
    assert sum(s.num_bytes for s in runs[0] if "copy to" in s.name) > 0


def names_of(spans):
    return {span.name for span in spans if span.kind in ("copy", "launch")}


def call_functional():
    x = torch.ones(3, device="sim")
    total = functional.all_reduce(x, "sum", dist.group.WORLD)
    return total + 0  # which waits for it


def train_sharded():
    model = sharded(transformer().to(own_device()))
    x, y = own_rows()
    loss_of(model(x), y).backward()


SENDING = {
    "c10d": (
        lambda: dist.all_reduce(torch.ones(3, device="sim")),
        {"allreduce"},
    ),
    "functional": (call_functional, {"allreduce"}),
    "fsdp": (train_sharded, {"allgather", "reduce_scatter"}),
}


@pytest.mark.parametrize("name", SENDING)
def test_operations_that_send_are_charged(name):
    program, expected = SENDING[name]
    with dpkit.sim.machine(hosts="per_device"), dpkit.sim.trace() as timeline:
        dpkit.sim.launch(program, 2)
    assert expected <= names_of(timeline.spans)
    sent = sum(s.num_bytes for s in timeline.spans if "copy to" in s.name)
    assert sent > 0


def step_in_shards():
    """Do a step of Adam on shards; return the bytes of these."""
    net = sharded(transformer().to(own_device()))
    optimizer = torch.optim.Adam(net.parameters())
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    return sum(p.to_local().nbytes for p in net.parameters())


def test_the_memory_of_shards_is_known_by_what_it_is_for():
    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.sim.trace() as timeline,
    ):
        num_bytes, _ = dpkit.sim.launch(step_in_shards, 2)
    held = dict.fromkeys(("parameters", "gradients", "optimizer state"), 0)
    for block in timeline.blocks:
        if block.device == "sim:0" and block.category in held:
            held[block.category] += block.num_bytes
    assert held["parameters"] >= num_bytes
    assert held["gradients"] >= num_bytes
    assert held["optimizer state"] >= 2 * num_bytes  # two moments


def test_one_function_started_in_three_ways(run_ranks, tmp_path):
    """By threads, by processes, and by what torchrun starts."""
    found = dpkit.sim.launch(train_anywhere.on_sim, 2)
    found += dpkit.launch(train_anywhere.in_a_process, 2, backend="gloo")
    run_ranks(2, train_anywhere.__name__, tmp_path / "found.pt")
    found.append(torch.load(tmp_path / "found.pt"))
    assert len(found) == 5
    for parameters in found:
        assert worst(parameters, one_device()) < 1e-10


# -- batch normalisation over all ranks


def images(group=0):
    """Return the rows of a group of ranks, others for each."""
    generator = torch.Generator().manual_seed(2 + group)
    shape = 8, 2, 5, 5
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def convolution():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * 9, 1)).double()


def fit(model, x):
    optimizer = descent(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    found = whole(model)
    buffers = {n.removeprefix("module."): b for n, b in model.named_buffers()}
    return found | {n: b.cpu() for n, b in buffers.items()}


def fit_on_ranks(convert):
    model = convolution()
    if convert:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DistributedDataParallel(model.to(own_device()))
    rank, k = dist.get_rank(), dist.get_world_size()
    return fit(model, images().chunk(k)[rank].to(own_device()))


@pytest.mark.parametrize("k", few_of(RANKS, RANKS[:1]))
def test_sync_batch_norm_is_that_of_the_whole_batch(k):
    expected = fit(convolution(), images())
    for found in dpkit.sim.launch(fit_on_ranks, k, True):
        assert worst(found, expected) < 1e-10
    alone = dpkit.sim.launch(fit_on_ranks, k, False)
    assert worst(alone[0], expected) > 1e-3


def fit_in_groups():
    """Train a model on ranks 0 and 2, and another one on 1 and 3."""
    rank = dist.get_rank()
    which = rank % 2
    group = [dist.new_group([0, 2]), dist.new_group([1, 3])][which]
    model = nn.SyncBatchNorm.convert_sync_batchnorm(convolution(), group)
    model = DistributedDataParallel(
        model.to(own_device()), process_group=group, bucket_cap_mb=0.001
    )
    x = images(which).chunk(2)[rank // 2]
    return fit(model, x.to(own_device()))


def test_groups_train_apart_each_on_its_own_rows():
    """Their buckets, and the moments of their batches."""
    for rank, found in enumerate(dpkit.sim.launch(fit_in_groups, 4)):
        expected = fit(convolution(), images(rank % 2))
        assert worst(found, expected) < 1e-10


# -- checkpoints


def state_of(model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def save_after_a_step(folder):
    model = sharded(transformer().to(own_device()))
    optimizer = descent(model)
    train(model, *own_rows(), optimizer, steps=1)
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)


def resume(folder):
    model = sharded(transformer().to(own_device()))
    for p in model.parameters():
        nn.init.zeros_(p)
    optimizer = descent(model)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return whole(train(model, *own_rows(), optimizer, steps=2))


def test_a_checkpoint_of_four_ranks_resumes_on_two(tmp_path):
    """The momentum too, or the last steps would differ."""
    dpkit.sim.launch(save_after_a_step, 4, tmp_path)
    for found in dpkit.sim.launch(resume, 2, tmp_path):
        assert worst(found, one_device()) < 1e-10
