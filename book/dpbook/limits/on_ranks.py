"""What PyTorch's engines cannot do on the ranks of ``dpkit.sim.launch``."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

from dpkit.runs import launch


def replicas(**settings: Any) -> None:
    """Take two steps by ``DistributedDataParallel``, with its settings."""
    net = nn.Linear(2, 2, device="sim")
    parallel = DistributedDataParallel(net, **settings)
    for _ in range(2):
        parallel(torch.ones(2, 2, device="sim")).sum().backward()


def in_half_precision() -> None:
    """Ask ``DistributedDataParallel`` to compute in bfloat16."""
    replicas(mixed_precision=_MixedPrecision(param_dtype=torch.bfloat16))


def sum_of_bits() -> None:
    """Reduce integers by the "and" of their bits."""
    bits = torch.tensor([1 + dist.get_rank()], device="sim")
    dist.all_reduce(bits, dist.ReduceOp.BAND)


def counts_of_a_router() -> list[int]:
    """Read how many rows go to each expert, which their scores decide."""
    scores = torch.ones(8, 2, device="sim")
    chosen = F.one_hot(scores.argmax(1), num_classes=2)
    counts: list[int] = chosen.sum(0).tolist()
    return counts


def why_not(program: Callable[[], object]) -> str:
    """Run a program on two ranks; return the first words of its error."""
    try:
        launch(program, 2)
    except RuntimeError as error:
        cause = error.__cause__ or error
        message = str(cause).split(";")[0].split("`by")[0].replace("`", "")
        return f"{type(cause).__name__}: {message}".rstrip(": ")
    return "it works"
