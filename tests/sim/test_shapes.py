"""Shapes of results are remembered, and are those that PyTorch works out."""

import pytest
import torch
from torch.nn import functional as F

import dpkit
from dpkit.sim.kernels import shapes

(ZERO,) = dpkit.devices(1, "sim")


def form(tensor):
    """Return what can be seen of a tensor without numbers."""
    return tensor.shape, tensor.stride(), tensor.dtype


@pytest.fixture
def worked_out(monkeypatch):
    """Collect the operations that are not remembered."""
    monkeypatch.setattr(shapes, "_known", {})
    seen, make = [], shapes._sizes

    def watched(out):
        seen.append(out)
        return make(out)

    monkeypatch.setattr(shapes, "_sizes", watched)
    return seen


# Pairs of calls that only just differ.
PAIRS = [
    (lambda x: x + x, lambda x: x.double() + x.double()),
    (lambda x: x + x, lambda x: x.t() + x.t()),
    (lambda x: x[:, :3] + 1, lambda x: x[:, :3].t() + 1),
    (lambda x: x.int() * 1, lambda x: x.int() * 1.0),
    (lambda x: x.int() + True, lambda x: x.int() + 1j),
    (lambda x: x.sum(0), lambda x: x.sum(1)),
    (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
    (lambda x: x.sum((0, 1)), lambda x: x.sum((1,))),
    (lambda x: x.sum(0), lambda x: x.sum(0, dtype=torch.float64)),
    (lambda x: torch.cat([x, x]), lambda x: torch.cat([x, x], 1)),
    (lambda x: torch.cat([x, x]), lambda x: torch.cat([x, x, x])),
    (lambda x: torch.stack([x, x]), lambda x: torch.stack([x, x.t().t()], 2)),
    (lambda x: x.topk(1).values, lambda x: x.topk(2).values),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_calls_that_differ_are_told_apart(pair):
    expected = [form(call(torch.empty(3, 4, device="meta"))) for call in pair]
    assert expected[0] != expected[1]
    with dpkit.sim.machine(backing="meta"):
        x = torch.empty(3, 4, device=ZERO)
        for _ in range(2):
            assert [form(call(x)) for call in pair] == expected


def test_the_default_type_counts():
    with dpkit.sim.machine(backing="meta"):
        x = torch.empty(3, device=ZERO, dtype=torch.int64)
        assert (x / x).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert (x / x).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_a_second_step_works_out_nothing(worked_out):
    with dpkit.sim.machine(backing="meta"):
        x = torch.empty(7, 4, device=ZERO, requires_grad=True)
        y = torch.empty(7, device=ZERO, dtype=torch.long)
        for expected in (True, False):
            F.cross_entropy(x.relu() @ x.t(), y).backward()
            assert bool(worked_out) is expected
            worked_out.clear()
            x.grad = None


def test_memory_is_that_of_the_first_time():
    with dpkit.sim.machine(backing="meta"):
        x = torch.empty(3, 4, device=ZERO)
        assert torch.sim.memory_allocated(ZERO) == 48
        for _ in range(3):
            y, z = x + x, x + x
            assert torch.sim.memory_allocated(ZERO) == 3 * 48
            del y
            assert torch.sim.memory_allocated(ZERO) == 2 * 48
            del z
            assert torch.sim.memory_allocated(ZERO) == 48


@pytest.mark.parametrize("rows", [1, 3])
def test_what_shares_memory_does_so_again(rows):
    with dpkit.sim.machine(backing="meta"):
        x = torch.empty(3, 4, device=ZERO)
        for _ in range(2):
            parts = x.unsafe_split(rows)  # a view, though it does not say so
            assert torch.sim.memory_allocated(ZERO) == 48
            del parts


def test_only_so_many_are_remembered(monkeypatch, worked_out):
    monkeypatch.setattr(shapes, "MOST", 3)
    with dpkit.sim.machine(backing="meta"):
        for n in range(10):
            x = torch.empty(n, device=ZERO)
            assert (x + x).shape == (n,)
            assert len(shapes._known) <= 3
