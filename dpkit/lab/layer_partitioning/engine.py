"""PyTorch's own engine for split layers: the program of one rank.

``launch`` runs it in real processes, which are all given the same layers and
batch. dpkit's split layers must equal the results.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from dpkit.processes import rank_device


def tensor_parallel_step(
    mlp: nn.Sequential,
    X: Tensor,
    y: Tensor,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run one forward and backward of two split layers by DTensor.

    Each rank has some columns of the first weight, in the sense of X·W, and
    the same rows of the second, and the whole batch: X, shape (b, …), and y.

    ``mlp`` is a linear layer, an activation and a linear layer; the ranks
    must divide the hidden size. ``loss_fn(outputs, y)`` is the mean loss.

    Returns:
        The loss, and the gradients by name, joined from all ranks.
    """
    device = rank_device()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(mlp.to(device), mesh, plan)
    loss = loss_fn(mlp(X.to(device)), y.to(device))
    loss.backward()
    return loss.detach(), {
        name: p.grad.full_tensor()
        for name, p in mlp.named_parameters()
        if isinstance(p.grad, DTensor)
    }
