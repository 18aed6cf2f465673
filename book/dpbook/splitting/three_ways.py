"""One network and one batch, split in three ways, and what each costs.

The network is the deep one of dense layers, and learns to give what it is
given. A way makes a step, which leaves the gradients of a batch: nothing is
updated, so that the ways differ only in what they split.
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.network_partitioning.runs import deep_network
from dpkit import Pipeline, devices, scatter, sim, split_layers, synchronize
from dpkit.arguments import Devices
from dpkit.data_parallel import BucketedDataParallel, allreduce_gradients
from dpkit.layer_partition import ParallelMLP, Replicated
from dpkit.sim.timeline import Timeline, history


class Split(NamedTuple):
    """A network that is split, and its step."""

    nets: list[nn.Module]  # the replicas; one, except when rows are split
    step: Callable[[], object]  # adds the gradients of the batch


Way = Callable[[nn.Sequential, Tensor, Devices], Split]


def data_parallelism(net: nn.Sequential, X: Tensor, ranks: Devices) -> Split:
    """Give every device all layers and a part of the rows; use buckets."""
    parallel = BucketedDataParallel(net, ranks)
    parts = scatter(X, ranks)

    def step() -> None:
        parallel.backward(
            [  # averaged over devices: a shard of 3 of 5 rows counts 2 · 3/5
                F.mse_loss(replica(part), part)
                * len(ranks)
                * len(part)
                / len(X)
                for replica, part in zip(parallel.replicas, parts)
            ]
        )

    return Split(parallel.replicas, step)


def star_after_backward(
    net: nn.Sequential, X: Tensor, ranks: Devices
) -> Split:
    """Do the same, and send each gradient by a star when backward is done."""
    nets: list[nn.Module] = [copy.deepcopy(net).to(rank) for rank in ranks]
    parts = scatter(X, ranks)
    size = X.numel()

    def step() -> None:
        losses = [
            F.mse_loss(net(part), part, reduction="sum") / size
            for net, part in zip(nets, parts)
        ]
        torch.autograd.backward(losses)
        params = [list(net.parameters()) for net in nets]
        allreduce_gradients(params, algorithm="star")

    return Split(nets, step)


def layer_partitioning(net: nn.Sequential, X: Tensor, ranks: Devices) -> Split:
    """Give every device a part of each layer, and all rows."""
    split = split_pairs(net, ranks)
    replicas = [X.to(rank) for rank in ranks]

    def step() -> None:
        outputs = zip(split(replicas), replicas)
        torch.autograd.backward([F.mse_loss(out, X) for out, X in outputs])

    return Split([split], step)


def split_pairs(net: nn.Sequential, ranks: Devices) -> nn.Sequential:
    """Split layers in pairs: the first by outputs, the second by inputs."""
    if len(net) % 4:
        raise ValueError(
            f"layers are split in pairs (dense layers: {len(net) // 2})"
        )
    # Linear, ReLU, Linear, ReLU: the first three are split, the last is not.
    parts: list[nn.Module] = []
    for i in range(0, len(net), 4):
        first, inner, second, outer = net[i : i + 4]
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        parts.append(ParallelMLP(first, inner, second, ranks))
        parts.append(Replicated(outer, ranks))
    return nn.Sequential(*parts)


def network_partitioning(
    net: nn.Sequential, X: Tensor, ranks: Devices
) -> Split:
    """Give every device some layers; 1F1B with 4 micro-batches a device."""
    k = len(ranks)
    pipeline = Pipeline(
        split_layers(net, k), ranks, "1f1b", num_micro_batches=4 * k
    )
    y = X.to(ranks[-1])
    X = X.to(ranks[0])
    step = partial(pipeline.forward_backward, X, y, F.mse_loss)
    return Split([pipeline], step)


@dataclass(frozen=True)
class Cost:
    """What a step costs; of several devices, the one that has most."""

    seconds: float
    computing: float  # the seconds that each device computes at the least
    copying: float  # the seconds that a device sends or receives
    bytes_sent: int
    messages: int  # of all devices together, in copies
    parameter_bytes: int
    activation_bytes: int  # that lie on a device at once


def traced(
    way: Way,
    num_devices: int,
    *,
    rows: int,
    width: int,
    depth: int = 8,
    **hardware: Any,
) -> Timeline:
    """Trace a step on simulated devices that compute no values.

    Args:
        way: One of the three functions of this module, which splits the step.
        num_devices: How many there are.
        rows: The examples of the batch, over all devices.
        width: The values that go into each layer and come out of it.
        depth: The number of layers.
        **hardware: What :func:`dpkit.sim.machine` changes, by name. Unless it
            says otherwise, each device has a host.
    """
    with sim.machine(backing="meta", **{"hosts": "per_device", **hardware}):
        ranks = devices(num_devices, "sim")
        with ranks[0]:  # made there
            net = deep_network(width, depth)
            X = torch.zeros(rows, width)
        split = way(net, X, ranks)
        del net, X
        split.step()  # makes the gradients
        synchronize(ranks)
        with sim.trace() as timeline:
            split.step()
            synchronize(ranks)
        del split
    return timeline


def cost(timeline: Timeline) -> Cost:
    """Add up what a step cost.

    Example:
        >>> found = cost(traced(data_parallelism, 2, rows=64, width=256))
        >>> found.messages  # both buckets, each to the other and back
        8
        >>> found.parameter_bytes == 4 * 8 * (256 * 256 + 256)
        True
    """
    times = timeline.summary().devices.values()
    copies = [s for s in timeline.spans if s.kind == "copy"]
    return Cost(
        seconds=timeline.makespan,
        computing=min(device.busy for device in times),
        copying=max(device.copying for device in times),
        bytes_sent=max(device.bytes_sent for device in times),
        messages=sum(span.name.startswith("copy to") for span in copies),
        parameter_bytes=_most(timeline, "parameters"),
        activation_bytes=_most(timeline, "activations"),
    )


def _most(timeline: Timeline, category: str) -> int:
    """Return the most bytes of a category that lay on a device at once."""
    by_device = defaultdict(list)
    for block in timeline.blocks:
        # Backward's leaves pass for parameters. Those that the step itself
        # made are what came in from the stage before.
        if block.category == "parameters" and block.allocated >= 0:
            block = replace(block, category="activations")
        by_device[block.device].append(block)
    return max(
        moment.get(category, 0)
        for blocks in by_device.values()
        for moment in history(blocks)
    )
