"""Tests of the rule by which torch comes to simulated tensors."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from dpkit import sim

sim.register()


def test_no_operation_imports_what_torch_does_not_need(run_new):
    """DTensor imports sympy, 0.4 s; the counter of flops Triton, 0.1 s."""
    program = """
import sys, torch, dpkit
x = torch.ones(2, 2).to(dpkit.devices(1, "sim")[0])
print((x @ x + x).sum().item(), "->", *sorted(
    {"torch.distributed.tensor", "sympy", "torch.utils.flop_counter"}
    & set(sys.modules)))
"""
    assert run_new(program) == "12.0 ->\n"


class Holding(torch.Tensor):
    """A tensor of another class, which holds a simulated one."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=held.device
        )

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if cls is not Holding:
            return NotImplemented
        opened = tree_map_only(Holding, lambda x: x.held, args)
        return func(*opened, **(kwargs or {}))


class Refusing(Holding):
    """A tensor of a class that refuses to take part."""


def test_the_other_class_is_asked_where_simulated_tensors_refuse():
    x = torch.arange(3.0, device="sim:1")
    for total in (x + Holding(x), torch.add(x, Holding(x), alpha=1)):
        assert total.device == torch.device("sim:1")
        assert total.tolist() == [0.0, 2.0, 4.0]


def test_where_both_refuse_torch_says_so():
    x = torch.ones(3, device="sim:1")
    with pytest.raises(TypeError, match="Multiple dispatch failed"):
        torch.add(x, Refusing(x))


class Noting(TorchDispatchMode):
    """Note each operation."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.noted.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_comes_before_simulated_tensors():
    x = torch.ones(3, device="sim:1")
    with Noting() as mode:
        y = x + x
    assert mode.noted == ["aten.add.Tensor"]
    assert y.tolist() == [2.0, 2.0, 2.0]
