"""PyTorch's own engine for pipelines: the program of one rank.

``launch`` runs it in real processes, ``sim.launch`` on simulated devices. All
ranks are given the same model and batch. dpkit's pipelines must equal the
results.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
)
from torch.nn import functional as F

from dpkit import sim
from dpkit.lab.common.beside import Pair, Step, on_cpu, traced, traced_here
from dpkit.lab.network_partitioning.runs import deep_network
from dpkit.machine import devices
from dpkit.network_partition import Pipeline, split_layers
from dpkit.processes import rank_device
from dpkit.ranks import launch

Loss = Callable[[Tensor, Tensor], Tensor]
Schedule = type[PipelineScheduleSingle] | type[PipelineScheduleMulti]


def engine_step(
    stages: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    loss_fn: Loss,
    schedule: Schedule,
    num_micro_batches: int,
) -> tuple[Tensor | None, dict[str, Tensor]]:
    """Run one forward and backward of a pipeline by PyTorch's engine.

    The model comes in p stages for p ranks or, if the schedule interleaves, in
    v·p: rank r has stages r, r + p, r + 2p and so on. The engine cuts a batch
    X, (b, …), into micro-batches, whose number must divide b, adds their
    gradients and divides by their number. With a ``loss_fn(outputs, y)`` that
    is a mean over examples these are the gradients of the batch.

    Returns:
        The loss of the batch on the rank that has the last stage, else None.
        The gradients of this rank's stages, by the names that parameters
        have in ``nn.Sequential(*stages)``.
    """
    step = engine_of(stages, X, y, loss_fn, schedule, num_micro_batches)
    losses = step()
    loss = torch.stack(losses).detach().mean() if losses else None
    return loss, {
        f"{i}.{name}": p.grad
        for i in own_stages(len(stages))
        for name, p in stages[i].named_parameters()
        if p.grad is not None
    }


def own_stages(num_stages: int) -> range:
    """Return the numbers of the stages that this rank has."""
    return range(dist.get_rank(), num_stages, dist.get_world_size())


def engine_of(
    stages: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    loss_fn: Loss,
    schedule: Schedule,
    num_micro_batches: int,
) -> Callable[[], list[Tensor]]:
    """Return what runs a step of ``engine_step`` and gives its losses."""
    device, p = rank_device(), len(stages)
    mine = own_stages(p)
    parts = [PipelineStage(stages[i].to(device), i, p, device) for i in mine]
    engine = (
        schedule(parts[0], num_micro_batches, loss_fn)
        if issubclass(schedule, PipelineScheduleSingle)
        else schedule(list(parts), num_micro_batches, loss_fn)
    )
    inputs = [X.to(device)] if 0 in mine else []
    labels = y.to(device) if p - 1 in mine else None

    def step() -> list[Tensor]:
        losses: list[Tensor] = []
        engine.step(*inputs, target=labels, losses=losses)
        return losses

    return step


def torch_step(stages: Sequence[nn.Module], *settings: Any) -> Step:
    """Trace the second step of ``engine_of``; return its gradients."""
    step = engine_of(stages, *settings)
    step()  # in which the stages tell each other their shapes
    own = nn.ModuleList(stages[i] for i in own_stages(len(stages)))
    own.zero_grad()
    return Step(traced(step), on_cpu(own.parameters()))


def our_step(
    stages: Sequence[nn.Module], X: Tensor, y: Tensor, name: str, m: int
) -> Step:
    """Trace a step of the same pipeline by ours."""
    ranks = devices(len(stages), "sim")
    pipeline = Pipeline(list(stages), ranks, name, m)
    X, y = X.to(ranks[0]), y.to(ranks[-1])
    timeline = traced_here(
        lambda: pipeline.forward_backward(X, y, F.mse_loss), ranks
    )
    return Step(timeline, on_cpu(pipeline.parameters()))


def pipeline_pair(
    name: str,
    schedule: Schedule,
    world_size: int = 4,
    num_micro_batches: int = 8,
    width: int = 1024,
    **machine: Any,
) -> Pair:
    """Trace a step of the deep network by our schedule and by PyTorch's.

    There is a stage for each rank, and the batch has as many rows as a layer
    is wide. ``machine`` is what
    :func:`dpkit.sim.machine` changes.
    """
    torch.manual_seed(0)
    stages = split_layers(deep_network(width), world_size)
    X, y = torch.randn(2, width, width)
    with sim.machine(**{"hosts": "per_device", **machine}):
        ours = our_step(deepcopy(stages), X, y, name, num_micro_batches)
        batch = X, y, F.mse_loss, schedule, num_micro_batches
        timelines = launch(torch_step, world_size, stages, *batch)
    grads = [g for step in timelines for g in step.gradients]
    return Pair(name, ours, Step(timelines[0].timeline, grads))
