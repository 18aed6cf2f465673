"""Parameters that several stages share: a copy for each stage.

A layer that shares a parameter with an earlier stage is copied. From then on
the copies are kept equal, by the sum of their gradients::

    before    stage 0: E        stage 2: E         one parameter E
    after     stage 0: E0       stage 2: E2        equal values
    backward  gradient g0       gradient g2
    after it  g0 + g2           g0 + g2            so equal steps follow
"""

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dpkit.collectives import allreduce
from dpkit.network_partition.stage import layers_of

Groups = list[list[nn.Parameter]]


def untie(stages: Sequence[nn.Module]) -> tuple[list[nn.Module], Groups]:
    """Copy shared layers; return stages, and groups of equal parameters."""
    buffers = [id(b) for stage in stages for b in stage.buffers()]
    if len(set(buffers)) < len(buffers):
        raise ValueError(
            "two stages share a buffer, which would be on two devices; "
            "give each its own"
        )
    groups: dict[int, list[nn.Parameter]] = {}
    separate = []
    for stage in stages:
        earlier = frozenset(groups)
        if layers_of(stage) == [stage]:
            separate.append(_own(stage, earlier, groups))
        else:
            layers = OrderedDict(
                (name, _own(layer, earlier, groups))
                for name, layer in stage.named_children()
            )
            separate.append(nn.Sequential(layers))
    return separate, [group for group in groups.values() if len(group) > 1]


def _own(
    layer: nn.Module,
    earlier: frozenset[int],
    groups: dict[int, list[nn.Parameter]],
) -> nn.Module:
    """Return the layer, or a copy if an earlier stage has its parameters."""
    shared = any(id(p) in earlier for p in layer.parameters())
    own = copy.deepcopy(layer) if shared else layer
    for p, twin in zip(layer.parameters(), own.parameters()):
        if twin is not p and p.grad is not None:
            twin.grad = p.grad.clone()
        group = groups.setdefault(id(p), [])
        if not any(twin is other for other in group):
            group.append(twin)
    return own


@contextmanager
def gradients_summed(groups: Groups) -> Iterator[None]:
    """After a block that makes gradients, sum those of copies."""
    # Those from before are sums already: they are added to the new sums.
    before = [[p.grad for p in group] for group in groups]
    for group in groups:
        for p in group:
            p.grad = None
    try:
        yield
        for group in groups:
            _sum(group)
    finally:
        for group, old in zip(groups, before):
            _add(group, old)


@torch.no_grad()
def _sum(group: Sequence[nn.Parameter]) -> None:
    """Give all copies the sum of their gradients, if one has any."""
    if any(p.grad is not None for p in group):
        for p in group:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        grads = [p.grad for p in group if p.grad is not None]
        allreduce(grads, algorithm="ring")


@torch.no_grad()
def _add(group: Sequence[nn.Parameter], old: Sequence[Tensor | None]) -> None:
    for p, grad in zip(group, old):
        if p.grad is None:
            p.grad = grad
        elif grad is not None:
            p.grad += grad
