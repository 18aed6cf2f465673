"""Tests of random numbers: the numbers drawn without a generator."""

import pytest
import torch

from dpkit import sim

sim.register()


def drawn(device="sim:1"):
    return torch.rand(5, device=device).tolist()


@pytest.mark.parametrize("name", ["manual_seed", "manual_seed_all"])
def test_a_seed_decides_what_is_drawn(name):
    seed = getattr(torch.sim, name)
    seed(7)
    first = drawn()
    assert drawn() != first
    seed(7)
    assert drawn() == first
    seed(8)
    assert drawn() != first
    assert torch.sim.initial_seed() == 8


def test_a_seed_gives_the_numbers_of_the_cpu():
    """One generator serves them all, which CUDA's devices have each."""
    torch.manual_seed(7)
    expected = drawn("cpu")
    for seed in (torch.manual_seed, torch.sim.manual_seed):
        seed(7)
        assert drawn() == expected
        seed(7)
        assert drawn("cpu") == expected


@pytest.mark.parametrize("name", ["seed", "seed_all"])
def test_a_seed_of_chance(name):
    torch.sim.manual_seed(7)
    first = drawn()
    getattr(torch.sim, name)()
    assert torch.sim.initial_seed() != 7
    assert drawn() != first


def test_states():
    state, states = torch.sim.get_rng_state(1), torch.sim.get_rng_state_all()
    assert len(states) == torch.sim.device_count()
    first = drawn()
    torch.sim.set_rng_state(state, "sim:1")
    assert drawn() == first
    torch.sim.set_rng_state_all(states)
    assert drawn() == first
    with torch.random.fork_rng([1], device_type="sim"):
        second = drawn()
        torch.sim.manual_seed(7)
    assert drawn() == second


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.sim.get_rng_state(8)
