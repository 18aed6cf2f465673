"""Costs of layers as columns, for a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpkit.network_partition import LayerCost


def to_record(costs: Sequence[LayerCost]) -> dict[str, list[float]]:
    """Return costs as columns.

    Example:
        >>> to_record([LayerCost(0.5, 1.5, 84)])["backward_seconds"]
        [1.5]
    """
    columns = zip(*costs, strict=True)
    return {k: list(c) for k, c in zip(LayerCost._fields, columns)}


def from_record(record: Mapping[str, Sequence[Any]]) -> list[LayerCost]:
    """Return the costs that :func:`to_record` made columns of.

    Example:
        >>> from_record(to_record([LayerCost(0.5, 1.5, 84)]))
        [LayerCost(forward_seconds=0.5, backward_seconds=1.5, num_bytes=84)]
    """
    columns = [record[name] for name in LayerCost._fields]
    return [LayerCost(*row) for row in zip(*columns, strict=True)]
