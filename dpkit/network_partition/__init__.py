"""Network partitioning: each device has some of the layers.

A network is a composition of layers, f = f2 ∘ f1, so its parts can lie on
different devices. A batch goes through as micro-batches, one after another,
so that all parts have something to do::

    device 0 | 0F0 0F1 0F2     0B0 0B1 0B2
    device 1 |     1F0 1F1 1F2 1B0 1B1 1B2

``cutting`` makes the stages, ``stage`` runs one, ``interpreter`` does the
actions of a schedule, ``pipeline`` puts them together; ``untie`` gives each
stage its own copy of a shared parameter. Begin with ``pipeline``. The
schedules and their check are in ``dpkit.schedules``.
"""

from dpkit.network_partition.cutting import (
    LayerCost,
    layer_seconds,
    split_layers,
)
from dpkit.network_partition.interpreter import Interpreter
from dpkit.network_partition.pipeline import Pipeline
from dpkit.network_partition.stage import Stage

__all__ = [
    "Interpreter",
    "LayerCost",
    "Pipeline",
    "Stage",
    "layer_seconds",
    "split_layers",
]
