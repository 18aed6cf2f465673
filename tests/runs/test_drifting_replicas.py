"""Replicas that differ are found by ``torchrun``, and all else is not."""

import sys
from array import array

import pytest
import torch

from dpkit.runs.torchrun.replicas import number_of
from tests.runs.running_scripts import looked_for, section, torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

BEGIN = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)


def examples(columns=8):
    return torch.randn(4, columns).cuda() + rank


def train(net, optimizer, then=lambda step: None, model=None, steps=3):
    for step in range(steps):
        optimizer.zero_grad()
        (model or net)(examples()).square().mean().backward()
        then(step)
        optimizer.step()


def small(out=4):
    return nn.Linear(8, out).cuda()


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)
"""

WRONG = """
# A rank changes what it has.
net = DDP(small())
def decay(step):
    if rank == 1 and step == 1:
        net.module.bias.data.mul_(0.9)
train(net, sgd(net), decay)

# The forward of the module sends nothing.
net = DDP(small(3))
train(net, sgd(net), model=net.module)

# One rank loads what others do not.
net = DDP(small(2))
if rank == 0:
    net.module.load_state_dict(small(2).state_dict())
train(net, sgd(net))

# The second network has no wrapper.
torch.manual_seed(0)
made, judge = DDP(small(8)), small(1)
first, second = sgd(made), sgd(judge)
for _ in range(2):
    second.zero_grad()
    judge(made(examples())).mean().backward()
    first.step()
    second.step()

# Gradients are averaged by hand, from another seed on each rank.
torch.manual_seed(rank)
net = small(5)
def average(step):
    for p in net.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= size
train(net, sgd(net), average)
"""

FORGOTTEN = """
sampler = DistributedSampler(range(16))
net = small()
for epoch in range(2):
    list(sampler)
    train(net, sgd(net), steps=2)
"""

RIGHT = """
from torch._utils import _flatten_dense_tensors as flatten

net = DDP(nn.Sequential(small(8), nn.BatchNorm1d(8).cuda()))
scaler = torch.amp.GradScaler("cuda")
optimizer = sgd(net)
for step in range(3):
    optimizer.zero_grad()
    with net.no_sync():
        scaler.scale(net(examples()).square().mean()).backward()
    scaler.scale(net(examples()).square().mean()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
if rank == 0:  # the best checkpoint, to evaluate
    for p in net.parameters():
        p.data.mul_(0.5)

net = DDP(small(6))
adam = dict(optimizer_class=torch.optim.Adam, lr=0.1)
train(net, ZeroRedundancyOptimizer(net.parameters(), **adam))

net = small(5)
def average(step):
    for p in net.parameters():
        dist.all_reduce(p.grad.data)
        p.grad.data /= size
train(net, sgd(net), average)

flat = small(3)
def average_flat(step):
    grads = [p.grad for p in flat.parameters()]
    one = flatten(grads)
    dist.all_reduce(one)
    for grad, part in zip(grads, one.split([g.numel() for g in grads])):
        grad.copy_(part.view_as(grad) / size)
train(flat, sgd(flat), average_flat)

local = small(2)  # averaged every second step, and after the last
def average_parameters(step):
    if step % 2 == 0:
        for p in local.parameters():
            dist.all_reduce(p.data, op=dist.ReduceOp.AVG)
train(local, sgd(local), average_parameters, steps=5)
average_parameters(0)

class Parts(torch.optim.SGD):  # each rank does a part of the parameters
    def step(self, closure=None):
        for number, p in enumerate(self.param_groups[0]["params"]):
            if number % size == rank:
                p.data -= 0.1 * p.grad
            dist.broadcast(p.data, number % size)
parts = DDP(small(7))
train(parts, Parts(parts.parameters(), lr=0.1))

once = small(9)
train(once, sgd(once), steps=1)
for p in once.parameters():
    dist.all_reduce(p.data, op=dist.ReduceOp.AVG)

# DiLoCo: one optimizer steps in rounds, and another between them.
def in_rounds(net, rounds, steps):
    begun = [p.detach().clone() for p in net.parameters()]
    inner, outer = sgd(net), torch.optim.SGD(begun, lr=0.7, momentum=0.9)
    for _ in range(rounds):
        train(net, inner, steps=3)
        for p, start in zip(net.parameters(), begun):
            start.grad = start - p.data
            dist.all_reduce(start.grad, op=dist.ReduceOp.AVG)
        outer.step()
        for p, start in zip(net.parameters(), begun):
            p.data.copy_(start)
    train(net, inner, steps=steps)
in_rounds(small(10), rounds=1, steps=0)  # it ends with the first round
in_rounds(small(11), rounds=1, steps=1)  # and in the second
"""

# Parts of a layer, and stages of a pipeline, begin with the same numbers.
PARTS = """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Rows(nn.Linear):
    def forward(self, x):
        return Sum.apply(super().forward(x))


net = Rows(8, 4).cuda()
train(DDP(small(), process_group=dist.new_group([rank])), sgd(small()))
list(DistributedSampler(range(16)))
train(net, sgd(net))
"""

STAGES = """
list(DistributedSampler(range(16)))
net = small(8)
optimizer = sgd(net)
for _ in range(3):
    x = examples()
    if rank:
        dist.recv(x, 0)
        net(x).square().mean().backward()
    else:
        dist.send(net(x).detach(), 1)
        net(x).sum().backward()
    optimizer.step()
"""

# Each rank has a model of its own, and they are never averaged.
ENSEMBLE = """
net = small()
train(net, sgd(net))
loss = net(examples()).mean().detach()
dist.all_reduce(loss)
"""


def found(tmp_path, script, *options):
    ranks = "--nproc-per-node", "2"
    text = torchrun(tmp_path, *ranks, *options, script=BEGIN + script)
    return section(text, "Found")


@pytest.mark.slow
def test_replicas_that_differ_are_found(tmp_path):
    lines = found(tmp_path, WRONG)
    expected = [
        ("since step 2, first in bias (4,), in 1 of 2", "on some ranks alone"),
        (
            "since step 1, first in Linear.weight (3, 8), in 2 of 2",
            "is model.module",
        ),
        (
            "already before the first step, first in Linear 2.weight (2, 8)",
            "a checkpoint",
        ),
        (
            "since step 1, first in Linear 4.weight (1, 8), in 1 of 2",
            "no wrapper has them",
        ),
        (
            "already before the first step, first in Linear 5.weight (5, 8)",
            "made them equal",
        ),
    ]
    for line, (when, why) in zip(lines, expected, strict=True):
        said = "  ! rank 1's parameters differ from rank 0's "
        assert line.startswith(said + when), line
        assert why in line, line


@pytest.mark.slow
def test_a_wrapper_that_is_forgotten_is_found(tmp_path):
    first, *_ = found(tmp_path, FORGOTTEN)
    assert "since step 1, first in weight (4, 8)" in first
    assert "no wrapper has them" in first
    assert "(steps: 2); a script that averages parameters later" in first


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [RIGHT, PARTS, STAGES, ENSEMBLE],
    ids=["replicas", "parts", "stages", "ensemble"],
)
def test_what_is_right_is_not_found(tmp_path, script):
    sentence = looked_for(found(tmp_path, script))
    assert "replicas whose parameters differ" in sentence


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64]
)
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_a_number_changes_with_the_last_bit(dtype, is_turned, first):
    """Of the first element and of the last, wherever the values lie."""
    values = torch.arange(22, dtype=torch.float32).to(dtype)[first:][:21]
    values = values.view(3, 7)
    bits = values.view(torch.int16)
    number = number_of(values.t() if is_turned else values)
    assert number == number_of(values.clone())
    for place in (0, -1):
        bits[place, place] ^= 1
        assert number != number_of(values)
        bits[place, place] ^= 1
    if dtype is torch.float32 and not first:
        assert number != number_of(-values)


def test_a_number_is_of_values_and_has_64_bits():
    zeros = torch.tensor([0.0, 1.0, -0.0])
    assert number_of(zeros) == number_of(zeros.abs())
    diverged = torch.full((3,), torch.nan)
    assert number_of(diverged) == number_of(diverged.clone())
    assert number_of(zeros.to(torch.float8_e5m2)) != 0
    # Of these bits two words add up to the largest number of 64 bits.
    below = torch.nextafter(torch.tensor(2.0), torch.tensor(0.0)).item()
    words = [-2.0, below, below, 2.0]
    assert number_of(torch.tensor(words)) == 2**63 - 1
    one_more = number_of(torch.tensor([*words, 1.0]))
    assert array("q", [one_more])[0] < 0
