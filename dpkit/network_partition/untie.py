"""Give layers of different stages parameters of their own."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from dpkit.network_partition.stage import layers_of

Groups = dict[int, list[nn.Parameter]]


def untie(
    stages: Sequence[nn.Module],
) -> tuple[list[nn.Module], list[list[nn.Parameter]]]:
    """Copy the layers that share parameters with an earlier stage.

    Returns:
        The stages, and the groups of parameters that were one.

    Raises:
        ValueError: two stages share a buffer.

    Example:
        >>> from torch import nn
        >>> first, last = nn.Linear(3, 5), nn.Linear(3, 5)
        >>> last.weight = first.weight
        >>> stages, groups = untie([first, nn.Sequential(nn.ReLU(), last)])
        >>> [[tuple(p.shape) for p in group] for group in groups]
        [[(5, 3), (5, 3)]]
    """
    groups: Groups = {}
    buffers: set[int] = set()
    separate = []
    for stage in stages:
        earlier = frozenset(groups)
        found = {id(b) for b in stage.buffers()}
        if found & buffers:
            raise ValueError(
                "two stages share a buffer, which would be on two devices; "
                "give each its own"
            )
        buffers |= found
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
    layer: nn.Module, earlier: frozenset[int], groups: Groups
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
