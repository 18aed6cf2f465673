"""Data parallelism in real processes: the two engines, and rows of a rank."""

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor, nn

from dpkit import DistributedDataParallel
from dpkit.processes import rank_device

Wrapper = DistributedDataParallel | nn.parallel.DistributedDataParallel
ENGINES: dict[str, Callable[[nn.Module], Wrapper]] = {
    "ours": DistributedDataParallel,
    "PyTorch's": nn.parallel.DistributedDataParallel,
}


def my_part(X: Tensor) -> Tensor:
    """Return this rank's rows, as tensor_split cuts them, on its device."""
    rank = dist.get_rank()
    num_ranks = dist.get_world_size()
    return X.tensor_split(num_ranks)[rank].to(rank_device())
