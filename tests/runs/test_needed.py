"""What ranks need of torch: where it is gone, they alone refuse."""

import pkgutil
import re
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import distributed_c10d
from torch.distributed.tensor import _random

import dpkit
from dpkit.runs.ranks.needed import NAMES, REGISTRY, lacking


def total():
    x = torch.ones(2, device="sim")
    torch.distributed.all_reduce(x)
    return x.tolist()


def train():
    """Train and send on simulated devices, without ranks."""
    devices = dpkit.devices(2, "sim")
    layer = torch.nn.Linear(2, 1, bias=False).to(devices[1])
    torch.nn.init.ones_(layer.weight)
    layer(torch.ones(1, 2, device=devices[1])).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    copies = [torch.ones(2, device=device) for device in devices]
    dpkit.allreduce(copies)
    return layer.weight.tolist(), copies[0].tolist()


@pytest.fixture
def take_out(monkeypatch):
    """Take a name out of torch."""

    def take(path):
        path, _, name = path.rpartition(".")
        owner = pkgutil.resolve_name(path)
        if name == "queue_callback":  # of a class that nobody can change
            left = SimpleNamespace(run_backward=owner.run_backward)
            owner, name = torch.autograd.Variable, "_execution_engine"
            monkeypatch.setattr(owner, name, left)
        else:
            monkeypatch.setattr(owner, name, None)

    return take


@pytest.mark.parametrize("name", NAMES)
def test_without_a_name_ranks_alone_refuse(name, take_out):
    assert lacking() == []
    take_out(name)
    with pytest.raises(RuntimeError, match=re.escape(f"missing: {name})")):
        dpkit.sim.launch(total, 2)
    assert train() == ([[0.0, 0.0]], [2.0, 2.0])


def test_a_name_that_is_none_at_first_is_told_too(monkeypatch):
    monkeypatch.delattr(_random, "_rng_tracker")
    with pytest.raises(RuntimeError, match=r"_random\._rng_tracker"):
        dpkit.sim.launch(total, 2)


def test_a_module_that_is_gone_is_told_too(monkeypatch):
    monkeypatch.delattr(distributed_c10d, "_World")
    with pytest.raises(RuntimeError, match=r"_World\.pg_config_info"):
        dpkit.sim.launch(total, 2)
    assert train() == ([[0.0, 0.0]], [2.0, 2.0])


def test_what_is_new_in_the_registry_is_told(monkeypatch):
    monkeypatch.setattr(
        distributed_c10d._World, "pg_new", property(id), raising=False
    )
    with pytest.raises(RuntimeError, match=r"what .*_World\.pg_new begins"):
        dpkit.sim.launch(total, 2)


def test_the_registry_of_a_rank_begins_as_pytorchs():
    """A process that has no group tells what PyTorch's begins with."""
    fresh = distributed_c10d._World()
    shared = [name for name in REGISTRY if hasattr(fresh, name)]
    assert len(shared) > 8
    for name in shared:
        assert type(getattr(fresh, name)) is type(REGISTRY[name]()), name


def test_with_all_of_it_ranks_run():
    assert dpkit.sim.launch(total, 2) == [[2.0, 2.0]] * 2
