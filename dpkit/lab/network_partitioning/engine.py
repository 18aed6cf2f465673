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
    device, num_stages = rank_device(), len(stages)
    mine = range(dist.get_rank(), num_stages, dist.get_world_size())
    parts = [
        PipelineStage(stages[i].to(device), i, num_stages, device)
        for i in mine
    ]
    engine = (
        schedule(parts[0], num_micro_batches, loss_fn)
        if issubclass(schedule, PipelineScheduleSingle)
        else schedule(list(parts), num_micro_batches, loss_fn)
    )
    inputs = [X.to(device)] if 0 in mine else []
    labels = y.to(device) if num_stages - 1 in mine else None
    losses: list[Tensor] = []
    engine.step(*inputs, target=labels, losses=losses)
    loss = torch.stack(losses).detach().mean() if losses else None
    return loss, {
        f"{i}.{name}": p.grad
        for i in mine
        for name, p in stages[i].named_parameters()
        if p.grad is not None
    }
