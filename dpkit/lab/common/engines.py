"""PyTorch's own engines for pipelines and split layers, as one step each.

Each function is the program of one rank, and ``launch`` runs it in real
processes. All are given the same whole model and batch: examples X, shape
(b, …), and labels y, shape (b, …). ``loss_fn(outputs, y)`` is the mean loss
of examples. The results are what dpkit's own ways of splitting must equal.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from dpkit.processes import rank_device

Loss = Callable[[Tensor, Tensor], Tensor]
Schedule = type[PipelineScheduleSingle] | type[PipelineScheduleMulti]
# The loss where this rank computes it, and gradients by parameter.
Step = tuple[Tensor | None, dict[str, Tensor]]


def pipeline_step(
    stages: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    loss_fn: Loss,
    schedule: Schedule,
    num_micro_batches: int,
) -> Step:
    """Run one forward and backward of a pipeline by PyTorch's engine.

    The engine cuts the batch into micro-batches of one size, adds their
    gradients and divides the sums by the number of micro-batches. With a
    loss that is a mean over examples these are the gradients of the batch.

    Args:
        stages: The model in p pieces for p ranks, or, for a schedule that
            interleaves, v·p: rank r has stages r, r + p, r + 2p, …
        X: The examples of the batch.
        y: Their labels.
        loss_fn: Gives the loss.
        schedule: A schedule of ``torch.distributed.pipelining``.
        num_micro_batches: How many; it must divide b.

    Returns:
        The loss of the batch on the rank that has the last stage, else None.
        The gradients of this rank's stages, by the names that parameters
        have in ``nn.Sequential(*stages)``.

    Example:
        >>> from torch.distributed.pipelining import ScheduleGPipe
        >>> from dpkit.lab.common.engines import pipeline_step
        >>> from dpkit.processes import launch
        >>> stages = [torch.nn.Linear(5, 3), torch.nn.Linear(3, 2)]
        >>> X, y, loss_fn = torch.ones(8, 5), torch.ones(8, 2), nn.MSELoss()
        >>> steps = launch(
        ...     pipeline_step, 2, stages, X, y, loss_fn, ScheduleGPipe, 4
        ... )
        >>> [list(gradients) for _, gradients in steps]
        [['0.weight', '0.bias'], ['1.weight', '1.bias']]
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
    held = nn.ModuleDict({str(i): stages[i] for i in mine})
    return loss, gradients(held)


def tensor_parallel_step(
    mlp: nn.Sequential, X: Tensor, y: Tensor, loss_fn: Loss
) -> Step:
    """Run one forward and backward of two split layers by DTensor.

    Each rank has some columns of the first weight, in the sense of X·W, and
    the same rows of the second, and the whole batch.

    ``mlp`` is a linear layer, an activation and a linear layer; the ranks
    must divide the hidden size.

    Returns:
        The loss, and the gradients by name, joined from all ranks.
    """
    device = rank_device()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    parallelize_module(
        mlp.to(device), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    loss = loss_fn(mlp(X.to(device)), y.to(device))
    loss.backward()
    return loss.detach(), gradients(mlp)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return gradients by name, those split over ranks joined."""
    return {
        name: p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
        for name, p in module.named_parameters()
        if p.grad is not None
    }
