"""Tests of random numbers: torch.Generator on simulated devices."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from dpkit import sim
from dpkit.sim.operators import random_numbers
from dpkit.sim.operators.random_numbers import takes_generator

sim.register()


def seeded(device, seed=3):
    return torch.Generator(device=device).manual_seed(seed)


# Each takes a generator g, a device d and a tensor x on it.
OPERATIONS = {
    "rand": lambda g, d, x: torch.rand(5, generator=g, device=d),
    "randn": lambda g, d, x: torch.randn(5, generator=g, device=d),
    "randint": lambda g, d, x: torch.randint(9, (5,), generator=g, device=d),
    "randint from": lambda g, d, x: torch.randint(
        2, 9, (5,), generator=g, device=d
    ),
    "randperm": lambda g, d, x: torch.randperm(9, generator=g, device=d),
    "normal": lambda g, d, x: torch.normal(
        0.0, 1.0, (5,), generator=g, device=d
    ),
    "normal of tensors": lambda g, d, x: torch.normal(x, x, generator=g),
    "normal_": lambda g, d, x: x.normal_(generator=g),
    "uniform_": lambda g, d, x: x.uniform_(generator=g),
    "random_": lambda g, d, x: x.random_(generator=g),
    "bernoulli_": lambda g, d, x: x.bernoulli_(0.3, generator=g),
    "exponential_": lambda g, d, x: x.exponential_(generator=g),
    "bernoulli": lambda g, d, x: torch.bernoulli(x, generator=g),
    "multinomial": lambda g, d, x: torch.multinomial(x, 3, generator=g),
    "poisson": lambda g, d, x: torch.poisson(x, generator=g),
    "binomial": lambda g, d, x: torch.binomial(x, x, generator=g),
    "rand_like": lambda g, d, x: torch.rand_like(x, generator=g),
    "initialization": lambda g, d, x: nn.init.kaiming_uniform_(
        torch.empty(4, 4, device=d), generator=g
    ),
    "a positional generator": lambda g, d, x: torch.ops.aten.rrelu_with_noise(
        x - 0.5, x, 0.1, 0.3, True, g
    ),
}
parametrize = pytest.mark.parametrize("name", OPERATIONS)


def run(name, generator, device):
    x = torch.linspace(0.1, 0.9, 5).to(device)
    return OPERATIONS[name](generator, device, x)


@parametrize
def test_values_are_those_of_the_cpu(name):
    on_sim = run(name, seeded("sim:1"), "sim:1")
    assert str(on_sim.device) == "sim:1"
    assert torch.equal(on_sim.cpu(), run(name, seeded("cpu"), "cpu"))


@parametrize
def test_the_generator_moves_on_and_no_other(name):
    g, other = seeded("sim:1"), seeded("sim:1")
    default = torch.get_rng_state()
    first = run(name, g, "sim:1")
    assert torch.equal(torch.get_rng_state(), default)
    assert not torch.equal(g.get_state(), other.get_state())
    assert torch.equal(first, run(name, other, "sim:1"))


@parametrize
def test_a_generator_of_the_cpu_is_refused(name):
    words = "Expected a 'sim' device type for generator but found 'cpu'"
    if name == "randperm":
        words = "Expected a 'sim:1' generator device but found 'cpu'"
    with pytest.raises(RuntimeError, match=words):
        run(name, torch.Generator(), "sim:1")


@parametrize
def test_no_generator_is_the_default_one(name):
    results = []
    for device in ("cpu", "sim:1"):
        torch.manual_seed(5)
        results.append(run(name, None, device).cpu())
    assert torch.equal(*results)


def test_one_of_another_simulated_device():
    """CUDA's kernels compare the type of device, and randperm the device."""
    g = torch.Generator(device="sim:1")
    assert str(torch.rand(3, generator=g, device="sim:0").device) == "sim:0"
    words = "Expected a 'sim:0' generator device but found 'sim:1'"
    with pytest.raises(RuntimeError, match=words):
        torch.randperm(3, generator=g, device="sim:0")


def test_results_on_the_cpu_take_one_of_the_cpu():
    x = torch.ones(3, device="sim:1")
    made = torch.rand_like(x, device="cpu", generator=seeded("cpu"))
    assert torch.equal(made, torch.rand(3, generator=seeded("cpu")))


@pytest.mark.parametrize("make", [torch.rand, torch.randn])
def test_without_values(make):
    with sim.machine(backing="meta"):
        g = torch.Generator(device="sim:1")
        x = make(3, generator=g, device="sim:1")
        assert x.normal_(generator=g).shape == (3,)
        del x


# ------------------------------------------------------ the generator itself


def test_the_device():
    assert torch.Generator(device="sim:1").device == torch.device("sim:1")
    assert torch.Generator("sim").device == torch.device("sim:0")
    assert torch.Generator().device == torch.device("cpu")
    assert torch.Generator(None).device == torch.device("cpu")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.Generator("sim:8")


def test_seeds():
    g = torch.Generator("sim:1")
    assert g.initial_seed() == torch.Generator().initial_seed()
    assert g.manual_seed(7) is g
    assert g.initial_seed() == 7
    seed = g.seed()
    assert seed != 7
    assert g.initial_seed() == seed


def test_state():
    g = seeded("sim:1")
    state = g.get_state()
    assert state.device.type == "cpu"
    first = torch.rand(3, generator=g, device="sim:1")
    assert not torch.equal(torch.rand(3, generator=g, device="sim:1"), first)
    g.set_state(state)
    assert torch.equal(torch.rand(3, generator=g, device="sim:1"), first)
    assert torch.equal(seeded("cpu").get_state(), state)


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        lambda g: pickle.loads(pickle.dumps(g)),
        lambda g: g.clone_state(),
    ],
)
def test_copies_go_their_own_way(again):
    g = seeded("sim:1")
    other = again(g)
    assert other.device == g.device
    first = torch.rand(3, generator=g, device="sim:1")
    assert torch.equal(torch.rand(3, generator=other, device="sim:1"), first)


def test_it_is_gone_when_nobody_holds_it():
    gc.collect()
    before = len(random_numbers._alive)
    g = torch.Generator("sim:1")
    torch.rand(3, generator=g, device="sim:1")
    assert len(random_numbers._alive) == before + 1
    del g
    assert len(random_numbers._alive) == before


# ------------------------------------------------------- those of PyTorch


def test_other_generators_are_torchs_own():
    g = torch.Generator()
    assert type(g) is torch._C.Generator
    assert isinstance(g, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(seeded("sim:1"), torch.Generator)
    assert not isinstance(torch.ones(3), torch.Generator)
    pickled = pickle.dumps(g.manual_seed(3))
    assert b"dpkit" not in pickled
    again = pickle.loads(pickled)
    assert type(again) is torch._C.Generator
    assert torch.equal(again.get_state(), g.get_state())


def test_which_operations_take_one():
    aten = torch.ops.aten
    assert takes_generator(aten.add.Tensor) is None
    assert takes_generator(aten.poisson.default) == 1


def test_the_seed_counts_for_operations_on_the_cpu():
    """CUDA refuses them; here at least they draw what the seed says."""
    ours = torch.Generator("sim:1").manual_seed(7)
    plain = torch.Generator().manual_seed(7)
    for _ in range(2):
        drawn = [torch.rand(3, generator=g) for g in (ours, plain)]
        assert torch.equal(*drawn)
