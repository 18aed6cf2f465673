"""PyTorch's own engine for pipelines: the program of one rank.

``launch`` runs it in real processes, which are all given the same model and
batch. dpkit's pipelines must equal the results.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
)

from dpkit.processes import rank_device

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

    The engine cuts the batch X, shape (b, …), into micro-batches of one size,
    adds their gradients and divides the sums by the number of micro-batches.
    With a ``loss_fn(outputs, y)`` that is a mean over examples these are the
    gradients of the batch.

    Args:
        stages: The model in p pieces for p ranks, or, for a schedule that
            interleaves, v·p: rank r has stages r, r + p, r + 2p, …
        X: The examples of the whole batch.
        y: Their labels.
        loss_fn: Gives the mean loss.
        schedule: A class of ``torch.distributed.pipelining``.
        num_micro_batches: How many; it must divide b.

    Returns:
        The loss of the batch on the rank that has the last stage, else None.
        The gradients of this rank's stages, by the names that parameters
        have in ``nn.Sequential(*stages)``.
    """
    device = rank_device()
    mine = range(dist.get_rank(), len(stages), dist.get_world_size())
    parts = [
        PipelineStage(stages[i].to(device), i, len(stages), device)
        for i in mine
    ]
    engine = (
        schedule(parts[0], num_micro_batches, loss_fn)
        if issubclass(schedule, PipelineScheduleSingle)
        else schedule(list(parts), num_micro_batches, loss_fn)
    )
    inputs = [X.to(device)] if 0 in mine else []
    labels = y.to(device) if len(stages) - 1 in mine else None
    losses: list[Tensor] = []
    engine.step(*inputs, target=labels, losses=losses)
    loss = torch.stack(losses).detach().mean() if losses else None
    return loss, {
        f"{i}.{name}": p.grad
        for i in mine
        for name, p in stages[i].named_parameters()
        if p.grad is not None
    }
