"""What PyTorch's engines cannot do on the ranks of ``dpkit.sim.launch``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from dpkit.ranks import launch


def replicas(**settings: Any) -> None:
    """Take two steps by ``DistributedDataParallel``, with its settings."""
    net = nn.Linear(2, 2, device="sim")
    if "find_unused_parameters" in settings:
        net.unused = nn.Parameter(torch.ones(2, device="sim"))
    parallel = DistributedDataParallel(net, **settings)
    for _ in range(2):
        parallel(torch.ones(2, 2, device="sim")).sum().backward()


def dropout_of_shards() -> Tensor:
    """Drop numbers of a tensor that DTensor has cut into shards."""
    mesh = init_device_mesh("sim", (2,))
    x = torch.ones(4, 4, device="sim")
    return F.dropout(distribute_tensor(x, mesh, [Shard(0)]))


def attention_of_parts() -> None:
    """Give each rank a part of the sequence that attention goes over."""
    mesh = init_device_mesh("sim", (2,))
    x = torch.ones(1, 2, 8, 4, device="sim")
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
        F.scaled_dot_product_attention(x, x, x, is_causal=True)


def why_not(program: Callable[[], object]) -> str:
    """Run a program on two ranks; return the first words of its error."""
    try:
        launch(program, 2)
    except RuntimeError as error:
        cause = error.__cause__ or error
        words = str(cause).split(";")[0].split("`by")[0].replace("`", "")
        return f"{type(cause).__name__}: {words}".rstrip(": ")
    return "it works"
