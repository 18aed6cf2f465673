"""What memory is for: parameters, gradients, activations, and the rest.

Looked for only while a trace runs: after backward and after an optimizer's
step, from what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from dpkit.sim.configuration import simulation
from dpkit.sim.graph import nodes
from dpkit.sim.placement_rules import tensors_in


def tracing() -> bool:
    """Tell whether a trace wants to know."""
    return simulation.memory.blocks is not None


def mark(tensors: Iterable[Tensor | None], category: str) -> None:
    """Put the memory of simulated tensors into a category."""
    for tensor in tensors:
        backing = getattr(tensor, "backing", None)
        block = (
            None if backing is None else simulation.memory.block_of(backing)
        )
        if block is not None:
            block.category = category


def mark_results(out: Any) -> None:
    """Take what an operation made for activations, if autograd looks on."""
    if torch.is_grad_enabled() and not simulation.clock.in_backward:
        for tensor in tensors_in(out):
            backing = getattr(tensor, "backing", None)
            block = backing is not None and simulation.memory.block_of(backing)
            if block and block.category == "other":
                block.category = "activations"


def leaves(outputs: Sequence[Any]) -> list[Tensor]:
    """Return the tensors whose gradients backward will leave behind."""
    found = nodes(outputs)
    return [node.variable for node in found if hasattr(node, "variable")]


def mark_leaves(tensors: list[Tensor]) -> None:
    """Take leaves for parameters, and what backward left for gradients."""
    mark(tensors, "parameters")
    mark((tensor.grad for tensor in tensors), "gradients")


def mark_optimizer(optimizer: Optimizer, *_: Any) -> None:
    """Mark what an optimizer holds; it calls this after a step."""
    if tracing():
        for group in optimizer.param_groups:
            mark_leaves(group["params"])
        mark(tensors_in(list(optimizer.state.values())), "optimizer state")
