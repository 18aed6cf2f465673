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

from dpbook.common.engine_pairs import (
    Pair,
    Step,
    on_cpu,
    pair_of,
    traced,
    traced_here,
)
from dpbook.network_partitioning.runs import deep_network
from dpkit import Pipeline, devices, split_layers
from dpkit.processes import rank_device
from dpkit.runs import launch

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

    The engine cuts the batch into micro-batches, adds their gradients and
    divides by their number. As the loss is a mean over examples, these are the
    gradients of the batch.

    Args:
        stages: The model in p stages for p ranks or, if the schedule
            interleaves, in v·p: rank r has stages r, r + p, r + 2p and so on.
        X: The batch, shape (b, …).
        y: What it should give, shape (b, …).
        loss_fn: From outputs and y to a mean over examples.
        schedule: A class of PyTorch's schedules.
        num_micro_batches: It must divide b.

    Returns:
        The loss of the batch on the rank that has the last stage, else None.
        The gradients of this rank's stages, by the names that parameters
        have in ``nn.Sequential(*stages)``.
    """
    step = engine_of(
        stages,
        X,
        y,
        loss_fn=loss_fn,
        schedule=schedule,
        num_micro_batches=num_micro_batches,
    )
    losses = step()
    loss = torch.stack(losses).detach().mean() if losses else None
    return loss, {
        f"{i}.{name}": p.grad
        for i in own_stages(len(stages))
        for name, p in stages[i].named_parameters()
        if p.grad is not None
    }


def own_stages(num_stages: int) -> range:
    """Return which stages this rank has: r, r + p, r + 2p and so on."""
    return range(dist.get_rank(), num_stages, dist.get_world_size())


def engine_of(
    stages: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    loss_fn: Loss,
    schedule: Schedule,
    num_micro_batches: int,
) -> Callable[[], list[Tensor]]:
    """Return a function that takes a step of a rank, by PyTorch's engine.

    Args:
        stages: The model in p stages for p ranks or, if the schedule
            interleaves, in v·p: rank r has stages r, r + p, r + 2p and so on.
        X: The batch, shape (b, …).
        y: What it should give, shape (b, …).
        loss_fn: From outputs and y to a mean over examples.
        schedule: A class of PyTorch's schedules.
        num_micro_batches: It must divide b.

    Returns:
        A function that leaves gradients in the stages of this rank. It returns
        the losses of the micro-batches, on the rank that has the last stage;
        on others an empty list.
    """
    device = rank_device()
    p = len(stages)
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
    """Trace a second step by PyTorch's engine; return its gradients, too."""
    step = engine_of(stages, *settings)
    step()  # in which the stages tell each other their shapes
    own = nn.ModuleList(stages[i] for i in own_stages(len(stages)))
    own.zero_grad()
    return Step(traced(step), on_cpu(own.parameters()))


def our_step(
    stages: Sequence[nn.Module], X: Tensor, y: Tensor, name: str, m: int
) -> Step:
    """Trace a step of the same pipeline by ours.

    Args:
        stages: One for each device.
        X: The batch, shape (b, …).
        y: What it should give, shape (b, …).
        name: That of the schedule, such as "1f1b".
        m: How many micro-batches there are.
    """
    ranks = devices(len(stages), "sim")
    pipeline = Pipeline(list(stages), ranks, name, num_micro_batches=m)
    X = X.to(ranks[0])
    y = y.to(ranks[-1])
    timeline = traced_here(
        lambda: pipeline.forward_backward(X, y, F.mse_loss), ranks
    )
    return Step(timeline, on_cpu(pipeline.parameters()))


def pipeline_pair(
    name: str,
    schedule: Schedule,
    *,
    world_size: int = 4,
    num_micro_batches: int = 8,
    width: int = 1024,
    **machine: Any,
) -> Pair:
    """Trace a step of the deep network by our schedule and by PyTorch's.

    The batch has as many rows as a layer is wide.

    Args:
        name: That of our schedule, such as "1f1b".
        schedule: PyTorch's class of it.
        world_size: The number of devices, with a stage on each.
        num_micro_batches: How many there are.
        width: The values that go into each layer and come out of it.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """

    def both(width: int) -> tuple[Step, Step]:
        torch.manual_seed(0)
        stages = split_layers(deep_network(width), world_size)
        X, y = torch.randn(2, width, width)
        ours = our_step(deepcopy(stages), X, y, name, num_micro_batches)
        batch = X, y, F.mse_loss, schedule, num_micro_batches
        steps = launch(torch_step, world_size, stages, *batch)
        grads = [g for step in steps for g in step.gradients]
        return ours, Step(steps[0].timeline, grads)

    return pair_of(name, both, width, machine)
