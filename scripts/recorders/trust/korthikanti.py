"""Steps of transformers of 22 billion to a trillion weights, and their times.

The record ``korthikanti2022`` has what was measured. Each layer is split over
the 8 devices of a node, layers follow each other over nodes in a pipeline,
and backward computes each layer again. A step is put together of

- the layers, and what is before and behind them, on simulated devices;
- the pipeline's schedule, with these seconds for its actions;
- what is sent between nodes, a part by each device, and gathered there. Each
  action ends with that, and a device does nothing meanwhile;
- the optimizer, which moves 54 bytes for each weight of a device::

      float16 gradients to float32   6       Adam: four in, three out     28
      unscale them, look for NaN     8       weights to float16            6
      their norm                     4       zero the gradients            2

Not in it: the sum of the two gradients of the embedding's weights, which the
first and the last stage have; waiting for data and for Python.

Source:
    NVIDIA/Megatron-LM, megatron/p2p_communication.py (178beeb) for waiting,
    megatron/optimizer/optimizer.py (0076441) for the optimizer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from dpbook.limits.comparisons import Comparison
from dpkit.plans import library_seconds
from dpkit.schedules import Action, by_name, times
from dpkit.sim.hardware import (
    LINKS,
    Cluster,
    cluster,
    copy_seconds,
    operation_seconds,
)
from recorders.trust.transformer import ON, layer_seconds
from recorders.trust.transformer_ends import (
    WORDS,
    first_seconds,
    last_seconds,
)
from recorders.trust.transformer_layer import SEQUENCE, Shape

NETWORK = "infiniband200"
NUM_BYTES = 2  # of a number in float16
OPTIMIZER_BYTES = 54  # for each weight
HARDWARE = "A100"


@dataclass(frozen=True)
class Model:
    """A transformer, and how it is divided, as in the record."""

    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    interleave: int
    batch: int
    micro_batch: int

    @property
    def shape(self) -> Shape:
        """The size of a layer."""
        return Shape(self.heads, self.hidden, self.micro_batch, self.tensor)

    @property
    def num_micro_batches(self) -> int:
        """How many micro-batches follow each other in a step."""
        return self.batch // self.micro_batch

    @property
    def weights(self) -> float:
        """How many weights a device has; the first, with the embedding."""
        # 22B: 12 · 6144² · 48 / 8 = 2.7e9, and 51200 · 6144 / 8 = 0.04e9.
        layers = 12 * self.hidden**2 * self.layers / self.pipeline
        return (layers + WORDS * self.hidden) / self.tensor


def model_of(numbers: Mapping[str, Any]) -> Model:
    """Return the model of an entry of the record."""
    return Model(**{f.name: numbers[f.name] for f in fields(Model)})


def step_seconds(
    model: Model,
    recompute: str = "full",
    fused: bool = False,
    by_rows: bool = False,
) -> float:
    """Return the seconds of a step.

    Args:
        model: The sizes of the model, and how it is cut.
        recompute: What backward computes again: "none", "selective" or "full".
        fused: Whether attention is one kernel.
        by_rows: Whether devices share the rows between products, too: sequence
            parallelism.

    Example:
        22 billion weights on 8 devices, where 1.42 s were measured:

        >>> from recorders.trust.korthikanti import Model, step_seconds
        >>> model = Model(heads=64, hidden=6144, layers=48, tensor=8,
        ...               pipeline=1, interleave=1, batch=4, micro_batch=4)
        >>> 1.4 < step_seconds(model) < 1.5
        True
    """
    count = model.num_micro_batches
    shape = model.shape
    later = count > 1  # most micro-batches add to gradients that are there
    layer = layer_seconds(shape, recompute, fused, by_rows, later)
    ends = first_seconds(shape, later), last_seconds(shape, later)
    hop = hop_seconds(model, gathers=not by_rows)
    name = "interleaved" if model.interleave > 1 else "1f1b"
    stages = model.pipeline * model.interleave

    def seconds(action: Action) -> float:
        number = "FB".index(action.kind)
        total = hop + model.layers // stages * layer[number]
        at_end = action.stage == 0, action.stage == stages - 1
        return total + sum(e[number] for e, at in zip(ends, at_end) if at)

    schedule = by_name(
        name, model.pipeline, num_stages=stages, num_micro_batches=count
    )
    done = times(schedule, seconds).values()
    return max(end for _, end in done) + optimizer_seconds(model)


def hop_seconds(model: Model, gathers: bool = True) -> float:
    """Return what a micro-batch takes to the next node.

    Each device sends its part of it to the one that has its number there. If
    ``gathers``, those gather all parts over their own links.
    """
    if model.pipeline == 1:
        return 0.0
    # 175B: 1 · 2048 · 12288 numbers are 50 MB. A part of 6.3 MB takes 0.27 ms
    # to the next node, and the 44 MB that a device lacks there 0.24 ms.
    count = model.tensor
    num_bytes = NUM_BYTES * model.micro_batch * SEQUENCE * model.hidden
    sending = copy_seconds(LINKS[NETWORK], num_bytes / count)
    if not gathers:
        return sending
    node = _cluster(count)
    ranks = range(count)
    return sending + library_seconds("allgather", ranks, num_bytes, node)


def optimizer_seconds(model: Model) -> float:
    """Return what Adam takes, with what is done to gradients and weights."""
    num_bytes = OPTIMIZER_BYTES * model.weights
    return operation_seconds(
        _cluster(model.tensor).accelerator, flops=0, num_bytes=num_bytes
    )


def replicas_seconds(model: Model, num_replicas: int) -> float:
    """Return what an allreduce of the gradients adds to a step.

    Device r of every replica joins in one. All are on different nodes.
    """
    num_bytes = NUM_BYTES * model.weights
    apart = _cluster(num_replicas, ranks_per_node=1)
    ranks = range(num_replicas)
    return library_seconds("allreduce", ranks, num_bytes, apart)


def _cluster(num_devices: int, ranks_per_node: int | None = None) -> Cluster:
    return cluster(
        num_devices,
        ranks_per_node=ranks_per_node,
        network=NETWORK,
        **ON,
    )


class Way(NamedTuple):
    """How a layer was trained, and how the record calls it."""

    name: str  # of an entry of the layer's times
    recompute: str
    by_rows: bool
    step: str | None  # the name of the times of steps


WAYS = (
    Way("no recomputation", "none", False, None),
    Way("sequence parallel", "none", True, None),
    Way("selective recomputation", "selective", False, None),
    Way("full recomputation", "full", False, "full_seconds"),
    Way(
        "selective and sequence parallel",
        "selective",
        True,
        "selective_sp_seconds",
    ),
)


def comparisons(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield what was measured and what is predicted; nothing was fitted."""
    models = {k: model_of(v) for k, v in record["models"].items()}
    for way in WAYS:
        shape = models["22B"].shape
        found = layer_seconds(shape, way.recompute, by_rows=way.by_rows)
        measured = record["layer_milliseconds"][way.name]
        for name, seconds in found._asdict().items():
            what = f"{way.name}, {name}", "ms", 1e3 * seconds, measured[name]
            yield _row("a layer of 22B", *what)
    for way in WAYS:
        for name, model in models.items():
            if way.step is not None:
                step = step_seconds(model, way.recompute, by_rows=way.by_rows)
                what = way.name, "s", step, record["models"][name][way.step]
                yield _row(f"a step of {name}", *what)
    several = record["data_parallel_530B_seconds"]
    added = several["eight replicas"] - several["one replica"]
    sums = replicas_seconds(models["530B"], 8)
    what = "gradients of 8 replicas of 530B", "added to a step", "s"
    yield _row(*what, sums, added, "collectives between nodes")


def _row(
    subject: str,
    configuration: str,
    unit: str,
    predicted: float,
    measured: float,
    work: str = "transformers",
) -> Comparison:
    values = unit, predicted, measured, "unseen", work
    return Comparison(subject, HARDWARE, configuration, *values)
