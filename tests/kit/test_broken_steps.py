"""A step that breaks off, wherever it does, leaves the next one right.

A batch is broken off at each place in turn: in the backward of each layer, on
each device and for each micro-batch, and at allocations of memory. Then
the gradients are forgotten, as programs do it. Those of the next batch have to
be those of an engine that nothing has happened to.
"""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

import dpkit
from dpkit.data_parallel import BucketedDataParallel
from dpkit.schedules.named import NAMED
from dpkit.sharding import Copied, Zero1, Zero2, Zero3
from dpkit.sim.memory.accounting import Memory
from tests.weekly import few_of

LOSS = nn.MSELoss()


class Places:
    """Counts the places that a step comes to; breaks it off at one."""

    def __init__(self):
        self.begin()

    def begin(self, last=None):
        self.count, self.last = 0, last

    def come(self):
        self.count += 1
        if self.count == self.last:
            raise torch.OutOfMemoryError("planted")


BACKWARDS, ALLOCATIONS = Places(), Places()


class Reporting(torch.autograd.Function):
    """Return what is given; report the backward of it."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        BACKWARDS.come()
        return gradient


class Layer(nn.Linear):
    def forward(self, x):
        return torch.tanh(Reporting.apply(super().forward(x)))


@pytest.fixture
def allocations(monkeypatch):
    original = Memory.hold

    def hold(self, backing, device):
        if self.device_of(backing.untyped_storage()) is None:  # no view
            ALLOCATIONS.come()
        original(self, backing, device)

    monkeypatch.setattr(Memory, "hold", hold)


def layers():
    torch.manual_seed(0)
    return [Layer(a, b).double() for a, b in pairwise([7, 11, 5, 13, 3])]


def batches():
    generator = torch.Generator().manual_seed(1)
    make = partial(torch.rand, dtype=torch.double, generator=generator)
    return [(make(17, 7), make(17, 3)) for _ in range(2)]


class InShards:
    """An engine of ``dpkit.sharding``, and how programs use it."""

    def __init__(self, engine, **options):
        devices, adam = dpkit.devices(2, "sim"), torch.optim.Adam
        self.engine = engine(layers(), devices, adam, **options)

    def forget(self):
        self.engine.zero_grad()

    def gradients(self):
        if isinstance(self.engine, (Zero2, Zero3)):
            shards = [b.shards for b in self.engine.blocks]
            return [shard.grad for each in shards for shard in each]
        return [p.grad for b in self.engine.blocks for p in b.parameters()]


class ByOptimizer(InShards):
    """The same where the optimizer alone forgets."""

    def forget(self):
        self.engine.optimizer.zero_grad()


class InBuckets:
    def __init__(self, set_to_none=True, **options):
        net = nn.Sequential(*layers())
        devices = dpkit.devices(2, "sim")
        self.engine = BucketedDataParallel(net, devices, 1e-9, **options)
        self.set_to_none = set_to_none

    def forget(self):
        for replica in self.engine.replicas:
            replica.zero_grad(self.set_to_none)

    def gradients(self):
        replicas = self.engine.replicas
        return [p.grad for r in replicas for p in r.parameters()]


class InStages:
    """A pipeline in which three layers share their weights."""

    def __init__(self, schedule, recompute=False):
        parts = 4 if schedule == "interleaved" else 2
        net = [Layer(7, 7).double() for _ in range(4)]
        net[2].weight = net[3].weight = net[0].weight
        net = nn.Sequential(*net, Layer(7, 3).double())
        self.engine = dpkit.Pipeline(
            dpkit.split_layers(net, parts), dpkit.devices(2, "sim"),
            schedule, 4, recompute,
        )  # fmt: skip

    def forget(self):
        self.engine.zero_grad()

    def gradients(self):
        return [p.grad for p in self.engine.parameters()]


ENGINES = {
    "copied": partial(InShards, Copied),
    "zero 1": partial(InShards, Zero1),
    "zero 2": partial(InShards, Zero2),
    "zero 2, by the optimizer": partial(ByOptimizer, Zero2),
    "zero 3": partial(InShards, Zero3),
    "zero 3, by the optimizer": partial(ByOptimizer, Zero3),
    "zero 3, too late": partial(ByOptimizer, Zero3, gather="too late"),
    "buckets": InBuckets,
    "buckets, zeros": partial(InBuckets, set_to_none=False),
    "buckets, no overlap": partial(InBuckets, overlap=False),
    **{f"pipeline, {s}": partial(InStages, s) for s in NAMED},
    "pipeline, interleaved": partial(InStages, "interleaved"),
    "pipeline, recomputed": partial(InStages, "1f1b", recompute=True),
}


def step(made, batch):
    """Return the gradients that a batch makes."""
    made.engine.forward_backward(*batch, LOSS)
    return [grad.detach().cpu().clone() for grad in made.gradients()]


def check_all(name, places, every=1):
    """Break a batch off at all places, or some; compare the next."""
    broken, following = batches()
    torch.manual_seed(2)
    made = ENGINES[name]()
    expected = step(made, following)
    made.forget()
    places.begin()
    made.engine.forward_backward(*broken, LOSS)
    count = places.count
    assert count >= 8
    wrong = []
    for place in range(1, count + 1, every):
        made.forget()
        places.begin(place)
        with pytest.raises(torch.OutOfMemoryError, match="planted"):
            made.engine.forward_backward(*broken, LOSS)
        made.forget()
        places.begin()
        found = step(made, following)
        if not all(map(torch.equal, found, expected)):
            wrong.append(place)
    assert not wrong, f"places: {wrong} of {count}"


HERE = [
    "zero 1",
    "zero 3, by the optimizer",
    "buckets",
    "pipeline, zb-h1",
    "pipeline, recomputed",
]


@pytest.mark.parametrize("name", few_of(ENGINES, HERE))
def test_a_backward_that_breaks_off(name):
    check_all(name, BACKWARDS)


@pytest.mark.usefixtures("allocations")
@pytest.mark.parametrize(
    "name",
    few_of(
        [
            "zero 2, by the optimizer",
            "zero 3, by the optimizer",
            "buckets",
            "pipeline, 1f1b",
        ],
        ["zero 2, by the optimizer"],
    ),
)
def test_a_step_that_runs_out_of_memory(name):
    check_all(name, ALLOCATIONS, every=3)
