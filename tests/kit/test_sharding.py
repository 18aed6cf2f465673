"""ZeRO by hand: the step of one device, whatever lies in shards."""

import gc
from functools import partial

import pytest
import torch
from torch import nn

import dpkit
from dpkit.sharding import (
    Copied,
    FlatBlock,
    Zero1,
    Zero2,
    Zero3,
)
from dpkit.traffic import Traffic

LOSS = nn.MSELoss()
STAGES = [Copied, Zero1, Zero2, Zero3]
ENGINES = [
    *STAGES,
    partial(Zero3, gather="just in time"),
    partial(Zero3, gather="too late"),
    partial(Zero3, algorithm="direct"),
]
ROWS = 17  # which 2, 3, 4 and 5 do not divide
# Reduce-scatter, and allgather; the last stage gathers for backward, too.
PASSES = {Copied: 2, Zero1: 2, Zero2: 2, Zero3: 3}
# Of each parameter, its gradient and Adam's two averages: what lies in shards.
IN_SHARDS = {Copied: 0, Zero1: 2, Zero2: 3, Zero3: 4}
adam = partial(torch.optim.Adam, lr=0.1)


def blocks():
    """Return blocks of 88, 60 and 18 parameters."""
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(7, 11), nn.Tanh()),
        nn.Sequential(nn.Linear(11, 5), nn.Tanh()),
        nn.Linear(5, 3),
    ]
    return [layer.double() for layer in layers]


def batches(count, rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    make = partial(torch.rand, dtype=torch.double, generator=generator)
    return [(make(rows, 7), make(rows, 3)) for _ in range(count)]


def flat(tensors):
    return torch.cat([x.detach().cpu().flatten() for x in tensors])


def on_one_device(steps):
    net = nn.Sequential(*blocks())
    optimizer = adam(net.parameters())
    for X, y in steps:
        optimizer.zero_grad()
        torch.autograd.backward(LOSS(net(X), y))
        optimizer.step()
    return flat(net.parameters())


def trained(engine, devices, steps):
    parallel = engine(blocks(), devices, adam)
    for X, y in steps:
        parallel.zero_grad()
        parallel.forward_backward(X, y, LOSS)
        parallel.step()
    return parallel


def replicas(parallel):
    """Return all parameters of each rank, whole."""
    if isinstance(parallel, Zero3):
        for block in parallel.blocks:
            block.gather()
    k = len(parallel.devices)
    return [flat(b.wholes[r] for b in parallel.blocks) for r in range(k)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", range(1, 6))
def test_k_devices_take_the_steps_of_one(get_ranks, k, engine):
    steps = batches(3)
    found = replicas(trained(engine, get_ranks(k), steps))
    assert len(found) == k
    expected = on_one_device(steps)
    assert (expected - on_one_device([])).abs().max() > 0.1  # it did learn
    for params in found:
        assert (params - expected).abs().max() < 1e-10


@pytest.mark.parametrize("engine", ENGINES)
def test_the_loss_is_that_of_the_batch(get_ranks, engine):
    ((X, y),) = batches(1)
    parallel = engine(blocks(), get_ranks(3), adam)
    loss = parallel.forward_backward(X, y, LOSS)
    expected = LOSS(nn.Sequential(*blocks())(X), y).item()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert not loss.requires_grad


@pytest.mark.parametrize("engine", STAGES)
def test_gradients_of_several_batches_add_up(get_ranks, engine):
    steps = batches(3)
    parallel = engine(blocks(), get_ranks(3), adam)
    net = nn.Sequential(*blocks())
    for X, y in steps:
        parallel.forward_backward(X, y, lambda out, y: LOSS(out, y) / 3)
        torch.autograd.backward(LOSS(net(X), y) / 3)
    parallel.step()
    adam(net.parameters()).step()
    for params in replicas(parallel):
        assert (params - flat(net.parameters())).abs().max() < 1e-10


def test_parameters_without_a_gradient_get_zeros():
    class Half(nn.Linear):
        def forward(self, x):
            return x @ self.weight.t()

    parallel = Zero3([Half(3, 3)], dpkit.devices(2, "sim"), adam)
    parallel.forward_backward(torch.ones(4, 3), torch.zeros(4, 3), LOSS)
    found = flat(s.grad for s in parallel.blocks[0].shards)
    assert (found[:9] != 0).all()
    assert (found[9:] == 0).all()


def step_of(engine, k):
    """Return what is sent in a step, of which the first makes the state."""
    ((X, y),) = batches(1)
    parallel = trained(engine, dpkit.devices(k, "sim"), batches(1))
    with Traffic() as traffic:
        parallel.zero_grad()
        parallel.forward_backward(X, y, LOSS)
        parallel.step()
    return traffic


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("engine", STAGES)
def test_bytes_sent(k, engine):
    """By all ports together; no two of 88, 60 and 18 have the same rest."""
    losses = 8 * (k - 1)  # each goes to the first device
    parameters = 8 * (88 + 60 + 18)
    expected = PASSES[engine] * (k - 1) * parameters + losses
    assert step_of(engine, k).num_bytes == expected


@pytest.mark.parametrize("engine", STAGES)
def test_bytes_sent_by_each_port(engine):
    devices = dpkit.devices(2, "sim")  # which divides 88, 60 and 18
    parallel = trained(engine, devices, batches(1))
    X, y = (x.to(devices[0]) for x in batches(1, 2)[0])
    with Traffic() as traffic:
        parallel.forward_backward(X, y, LOSS)
        parallel.step()
    expected = PASSES[engine] * 8 * 166 // 2
    inputs = (7 + 3) * 8  # a row of X and of y
    assert traffic.sent[devices[0]] == expected + inputs
    assert traffic.sent[devices[1]] == expected + 8  # the loss


def kept(engine, k):
    """Return the bytes that each device holds after a step."""
    devices = dpkit.devices(k, "sim")
    gc.collect()  # what an earlier test has left
    before = [torch.sim.memory_allocated(d) for d in devices]
    parallel = trained(engine, devices, batches(1))
    held = [
        torch.sim.memory_allocated(d) - start
        for d, start in zip(devices, before)
    ]
    del parallel  # which has held it
    return held


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("engine", STAGES)
def test_memory_kept(k, engine):
    """Counted for each device; of 166 numbers k devices have 166 together."""
    cut = IN_SHARDS[engine]
    parts = [sum(len(range(n)[r::k]) for n in (88, 60, 18)) for r in range(k)]
    assert kept(engine, k) == [
        8 * ((4 - cut) * 166 + cut * part) for part in parts
    ]


def test_what_the_parts_hold_is_no_copy_of_the_whole():
    parallel = trained(Zero3, dpkit.devices(3, "sim"), batches(1))
    for block in parallel.blocks:
        for whole, replica in zip(block.wholes, block.replicas):
            assert whole.untyped_storage().nbytes() == 0
            assert all(p.grad is None for p in replica.parameters())


def test_masters_of_whole_parameters_in_16_bits():
    """Small steps add up in the shards, though the weights lose them."""
    devices = dpkit.devices(3, "sim")
    sgd = partial(torch.optim.SGD, lr=1e-4)
    start = [block.float() for block in blocks()]
    parallel = Zero3(start, devices, sgd, dtype=torch.bfloat16)
    net = nn.Sequential(*start)
    optimizer = sgd(net.parameters())
    for X, y in batches(5):
        X, y = X.float(), y.float()
        parallel.zero_grad()
        parallel.forward_backward(
            X.bfloat16(), y, lambda out, y: LOSS(out.float(), y)
        )
        parallel.step()
        optimizer.zero_grad()
        torch.autograd.backward(LOSS(net(X), y))
        optimizer.step()
    k = len(devices)
    shards = [flat([b.shards[r] for r in range(k)]) for b in parallel.blocks]
    moved = flat(net.parameters()) - flat(
        p for block in blocks() for p in block.float().parameters()
    )
    away = torch.cat(shards) - flat(net.parameters())
    assert torch.cat(shards).dtype == torch.float32
    assert parallel.blocks[0].wholes[0].dtype == torch.bfloat16
    assert away.abs().max() < 0.1 * moved.abs().max()


def test_after_an_exception_parameters_are_gathered_again():
    class Failing(nn.Linear):
        fails = False

        def forward(self, x):
            if Failing.fails:
                raise RuntimeError("planted")
            return super().forward(x)

    first, _, last = blocks()
    layers = [first, Failing(11, 5).double(), last]
    parallel = Zero3(layers, dpkit.devices(3, "sim"), adam)
    net = nn.Sequential(*layers)
    optimizer = adam(net.parameters())
    for X, y in batches(2):
        optimizer.zero_grad()
        torch.autograd.backward(LOSS(net(X), y))
        optimizer.step()
    X, y = batches(2)[0]
    parallel.forward_backward(X, y, LOSS)
    Failing.fails = True
    with pytest.raises(RuntimeError, match="planted"):
        parallel.forward_backward(X, y, LOSS)
    Failing.fails = False
    parallel.step()
    parallel.zero_grad()
    parallel.forward_backward(*batches(2)[1], LOSS)
    parallel.step()
    for params in replicas(parallel):
        assert (params - flat(net.parameters())).abs().max() < 1e-10


def test_errors():
    devices = dpkit.devices(2, "sim")
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match=r"of one dtype .*float32.*float64"):
        FlatBlock(mixed, devices)
    with pytest.raises(
        ValueError, match=r"a block needs parameters.*block: Tanh"
    ):
        FlatBlock(nn.Tanh(), devices)
    with pytest.raises(ValueError, match="unknown gather"):
        Zero3(blocks(), devices, adam, gather="later")
    parallel = Zero1(blocks(), devices, adam)
    with pytest.raises(ValueError, match=r"nothing to do .examples: 1, dev"):
        parallel.forward_backward(*batches(1, 1)[0], LOSS)


@pytest.mark.parametrize("engine", STAGES)
def test_zero_grad_forgets_a_batch(engine):
    first, second = batches(2)
    parallel, alone = (
        engine(blocks(), dpkit.devices(2, "sim"), adam) for _ in range(2)
    )
    parallel.forward_backward(*first, LOSS)
    parallel.zero_grad()
    for each in (parallel, alone):
        each.forward_backward(*second, LOSS)
        each.step()
    for found, expected in zip(replicas(parallel), replicas(alone)):
        assert torch.equal(found, expected)


class FailingBackward(torch.autograd.Function):
    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if FailingBackward.fails:
            raise RuntimeError("planted")
        return gradient


class Layer(nn.Linear):
    def forward(self, x):
        return FailingBackward.apply(super().forward(x))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_backward_that_failed_leaves_nothing(engine):
    first, _, last = blocks()
    layers = [first, Layer(11, 5).double(), last]
    devices = dpkit.devices(2, "sim")
    parallel, alone = (engine(layers, devices, adam) for _ in range(2))
    FailingBackward.fails = True
    with pytest.raises(RuntimeError, match="planted"):
        parallel.forward_backward(*batches(1)[0], LOSS)
    FailingBackward.fails = False
    parallel.zero_grad()
    for each in (parallel, alone):
        each.forward_backward(*batches(2)[1], LOSS)
        each.step()
    for found, expected in zip(replicas(parallel), replicas(alone)):
        assert torch.equal(found, expected)


def test_what_would_be_trained_otherwise_is_refused():
    devices = dpkit.devices(2, "sim")
    tied = nn.Linear(3, 3), nn.Linear(3, 3)
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="a parameter is in two blocks"):
        Zero1(tied, devices, adam)
    frozen = nn.Linear(3, 3)
    frozen.bias.requires_grad_(False)
    with pytest.raises(ValueError, match=r"need gradients \(without: bias\)"):
        Zero3([frozen], devices, adam)


def test_16_bits_leave_buffers_as_they_are():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    parallel = Zero3(
        [net], dpkit.devices(2, "sim"), adam, dtype=torch.bfloat16
    )
    norm = parallel.blocks[0].replicas[1][1]
    assert norm.running_mean.dtype == torch.float32
    assert norm.weight.dtype == torch.bfloat16
