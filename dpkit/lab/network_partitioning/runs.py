"""Pipelines of the chapter: a deep network in simulated time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dpkit import sim
from dpkit.machine import devices, synchronize
from dpkit.network_partition import (
    LayerCost,
    Pipeline,
    layer_seconds,
    split_layers,
)
from dpkit.theory.pipelines.actions import Action, Schedule, owners
from dpkit.theory.timeline.timeline import Timeline


def deep_network(width: int, depth: int = 8) -> nn.Sequential:
    """Return dense layers of one width, each with a ReLU.

    Example:
        >>> len(deep_network(width=5, depth=3))
        6
    """
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers)


def convolutions_then_dense() -> nn.Sequential:
    """Return a network whose time lies early and whose parameters lie late.

    Four convolutions slide few weights over large images; two dense layers
    use each of many weights once an image.

    Example:
        >>> counts = [sum(p.numel() for p in layer.parameters())
        ...           for layer in convolutions_then_dense()]
        >>> sum(counts[:10]), sum(counts[10:])  # early and late
        (259008, 6433802)
    """
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 7 * 7, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def pipeline_step(
    num_devices: int,
    schedule: str | Schedule,
    num_micro_batches: int,
    rows: int = 4096,
    width: int = 4096,
    num_stages: int | None = None,
    recompute: bool = False,
    **hardware: Any,
) -> Timeline:
    """Trace a step of the deep network, of which no number is computed.

    The batch has ``rows`` examples of ``width`` numbers; there are as many
    stages as devices unless ``num_stages`` says otherwise. The schedule and
    what follows are as :class:`dpkit.Pipeline` takes them, the hardware as
    :func:`dpkit.sim.machine`.

    Example:
        >>> pipeline_step(2, "gpipe", 4).label
        'simulated (v100, nvlink2)'
    """
    m = num_micro_batches
    with sim.machine(backing="meta", **hardware):
        ranks = devices(num_devices, "sim")
        with ranks[0]:  # made there
            net = deep_network(width)
        stages = split_layers(net, num_stages or num_devices)
        pipeline = Pipeline(stages, ranks, schedule, m, recompute)
        X = torch.zeros(rows, width, device=ranks[0])
        y = torch.zeros(rows, width, device=ranks[-1])
        synchronize(ranks)
        with sim.trace() as timeline:
            pipeline.forward_backward(X, y, F.mse_loss)
            synchronize(ranks)
        # Freed here: the backing may change only where no tensor is left.
        del net, stages, pipeline, X, y
    return timeline


def computing(timeline: Timeline) -> Timeline:
    """Return the part of a timeline in which devices compute."""
    spans = [span for span in timeline.spans if span.kind == "compute"]
    return replace(timeline, spans=spans)


def idle_share(timeline: Timeline) -> float:
    """Return the share of the time that the devices do not compute.

    Of all devices together, by the makespan of what they compute.

    Example:
        >>> from dpkit.theory.pipelines.replay import replay
        >>> from dpkit.theory.pipelines.schedules import gpipe
        >>> idle_share(replay(gpipe(2, 3), {"F": 1.0, "B": 2.0}))
        0.25
    """
    found = timeline.summary().devices.values()
    busy = sum(device.busy for device in found)
    return 1 - busy / (len(found) * timeline.makespan)


def idle_of_busiest(timeline: Timeline) -> float:
    """Return the share of the time that the busiest device is idle."""
    found = timeline.summary().devices.values()
    return 1 - max(device.busy for device in found) / timeline.makespan


def activation_peaks(
    num_devices: int,
    schedule: str | Schedule,
    num_micro_batches: int,
    rows: int,
    recompute: bool = False,
) -> list[int]:
    """Return the most bytes that a step adds on each simulated device.

    The network has width 256. Its parameters and their gradients are there
    before the step and not counted.
    """
    ranks = devices(num_devices, "sim")
    stages = split_layers(deep_network(256), num_devices)
    pipeline = Pipeline(stages, ranks, schedule, num_micro_batches, recompute)
    for p in pipeline.parameters():
        p.grad = torch.zeros_like(p)
    memory = torch.get_device_module("sim")
    before = [memory.memory_allocated(rank) for rank in ranks]
    for rank in ranks:
        memory.reset_peak_memory_stats(rank)
    X, y = torch.zeros(2, rows, 256)
    pipeline.forward_backward(X, y, F.mse_loss)
    after = [memory.max_memory_allocated(rank) for rank in ranks]
    return [most - start for most, start in zip(after, before)]


def stage_seconds(
    rows: int, num_layers: int, width: int = 4096
) -> dict[str, float]:
    """Return the simulated seconds of a stage's actions, by their kind."""
    with sim.machine(backing="meta"):
        (device,) = devices(1, "sim")
        with device:
            model = deep_network(width, num_layers)
            x = torch.zeros(rows, width)
        costs = layer_seconds(model, x.requires_grad_(), device)
    forward, backward, _ = map(sum, zip(*costs))
    halves = {"I": backward / 2, "W": backward / 2}
    return {"F": forward, "B": backward, **halves}


def hops(schedule: Schedule) -> int:
    """Return how many messages go from device to device in a step.

    Example:
        >>> from dpkit.theory.pipelines.schedules import gpipe
        >>> hops(gpipe(3, 5))
        20
    """
    owner = owners(schedule)
    # 3 stages on 3 devices have 2 borders; each of 5 micro-batches crosses
    # both, forward and back: 2 * 2 * 5 = 20.
    borders = sum(owner[s] != owner[s + 1] for s in range(len(owner) - 1))
    count = 1 + max(a.micro_batch for row in schedule for a in row)
    return 2 * borders * count


def by_stage(
    costs: Sequence[LayerCost], stages: Sequence[nn.Sequential]
) -> Callable[[Action], float]:
    """Return the seconds of each action, from those of the layers.

    Example:
        >>> stages = split_layers(deep_network(5, depth=2), 2, sizes=[1, 3])
        >>> costs = [LayerCost(1 + 2 * i, 2 + 2 * i, 0) for i in range(4)]
        >>> of = by_stage(costs, stages)
        >>> of(Action(1, "F", 0)), of(Action(1, "B", 0))
        (15, 18)
    """
    # Stages of 1 and 3 layers end at 1 and 4: costs[0:1] and costs[1:4].
    ends = list(accumulate(map(len, stages)))
    of_stage = [
        [sum(times) for times in zip(*costs[end - len(stage) : end])]
        for stage, end in zip(stages, ends)
    ]
    return lambda action: of_stage[action.stage]["FB".index(action.kind)]
