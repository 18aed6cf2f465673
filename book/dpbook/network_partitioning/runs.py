"""Pipelines of the chapter: a deep network in simulated time."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dpkit import Pipeline, devices, sim, split_layers, synchronize
from dpkit.network_partition import layer_seconds
from dpkit.schedules import Schedule
from dpkit.sim.timeline import Timeline


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


def pipeline_step(
    num_devices: int,
    schedule: str | Schedule,
    num_micro_batches: int,
    *,
    rows: int = 4096,
    width: int = 4096,
    num_stages: int | None = None,
    recompute: bool = False,
    **hardware: Any,
) -> Timeline:
    """Trace a step of the deep network, of which no value is computed.

    Args:
        num_devices: How many there are.
        schedule: A name, or a list, as for :class:`dpkit.Pipeline`.
        num_micro_batches: How many there are.
        rows: The examples of the batch.
        width: The values that go into each layer and come out of it.
        num_stages: None: one for each device.
        recompute: As for :class:`dpkit.Pipeline`.
        **hardware: What :func:`dpkit.sim.machine` changes, by name.

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
        pipeline = Pipeline(
            stages, ranks, schedule, num_micro_batches=m, recompute=recompute
        )
        X = torch.zeros(rows, width, device=ranks[0])
        y = torch.zeros(rows, width, device=ranks[-1])
        synchronize(ranks)
        with sim.trace() as timeline:
            pipeline.forward_backward(X, y, F.mse_loss)
            synchronize(ranks)
        # Freed here: the backing may change only where no tensor is left.
        del net, stages, pipeline, X, y
    return timeline


def stage_seconds(
    rows: int, width: int = 4096, depth: int = 2
) -> dict[str, float]:
    """Return the seconds of each kind of action of a stage.

    The stage has ``depth`` layers of the deep network, on one simulated
    device that computes no numbers.

    Args:
        rows: Examples of a micro-batch.
        width: Numbers in an example, and outputs of each layer.
        depth: Layers of the stage.

    Returns:
        Seconds by the letter of the action: ``F`` and ``B`` as the clock of
        the device has them; ``I`` and ``W``, the halves of ``B``, half of it.

    Example:
        >>> seconds = stage_seconds(rows=512)
        >>> seconds["F"] < seconds["B"] == 2 * seconds["W"]
        True
    """
    with sim.machine(backing="meta"):
        (device,) = devices(1, kind="sim")
        with device:
            stage = deep_network(width, depth)
            x = torch.zeros(rows, width, requires_grad=True)
        costs = layer_seconds(stage, x, device)
        forward = sum(cost.forward_seconds for cost in costs)
        backward = sum(cost.backward_seconds for cost in costs)
        del stage, x
    halves = {"I": backward / 2, "W": backward / 2}
    return {"F": forward, "B": backward, **halves}


def activation_peaks(
    num_devices: int,
    schedule: str | Schedule,
    num_micro_batches: int,
    *,
    rows: int,
    recompute: bool = False,
    width: int = 256,
) -> list[int]:
    """Return the most bytes that a step adds on each simulated device.

    The parameters and their gradients are there before the step and not
    counted.

    Args:
        num_devices: How many there are, with a stage on each.
        schedule: A name, or a list, as for :class:`dpkit.Pipeline`.
        num_micro_batches: How many there are.
        rows: The examples of the batch.
        recompute: As for :class:`dpkit.Pipeline`.
        width: The values that go into each layer and come out of it.
    """
    ranks = devices(num_devices, "sim")
    with ranks[0]:
        stages = split_layers(deep_network(width), num_devices)
    pipeline = Pipeline(
        stages,
        ranks,
        schedule,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
    )
    for p in pipeline.parameters():
        p.grad = torch.zeros_like(p)
    memory = torch.get_device_module("sim")
    before = [memory.memory_allocated(rank) for rank in ranks]
    for rank in ranks:
        memory.reset_peak_memory_stats(rank)
    X, y = torch.zeros(2, rows, width)
    pipeline.forward_backward(X, y, F.mse_loss)
    after = [memory.max_memory_allocated(rank) for rank in ranks]
    return [most - start for most, start in zip(after, before)]
