"""PyTorch's engines: the programs that ranks run, and what one device does.

A program trains a small transformer for three steps, and returns the whole
parameters. All are in ``ENGINES``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

NUM_WORDS, LENGTH, WIDTH, HEADS = 24, 5, 16, 8
STEPS, RATE = 3, 0.5


class Block(nn.Module):
    """Attention and a network of two layers, each beside what they change."""

    def __init__(self):
        super().__init__()
        self.norm, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def heads(self, y):
        """A rank of several has some of the heads."""
        return y.view(*y.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (self.heads(f(h)) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def transformer(num_blocks=2):
    """Return the model; all ranks make the same."""
    torch.manual_seed(0)
    layers = [nn.Embedding(NUM_WORDS, WIDTH)]
    layers += [Block() for _ in range(num_blocks)]
    layers += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NUM_WORDS)]
    return nn.Sequential(*layers).double()


def blocks_of(model):
    return [layer for layer in model if isinstance(layer, Block)]


def words(batch=8):
    """Return the words of a batch, and those that come next."""
    generator = torch.Generator().manual_seed(1)
    shape = batch, LENGTH + 1
    x = torch.randint(0, NUM_WORDS, shape, generator=generator)
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def loss_of(scores, y):
    return F.cross_entropy(scores.flatten(0, 1), y.flatten())


def train(model, x, y, optimizer=None, steps=STEPS):
    optimizer = optimizer or descent(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    return model


def descent(model, **settings):
    """Return the optimizer. Adam would not see gradients of a wrong scale."""
    return torch.optim.SGD(model.parameters(), RATE, momentum=0.9, **settings)


def whole(model):
    """Return name -> whole parameter, on the CPU."""
    found = {}
    for name, p in model.named_parameters():
        value = p.detach()
        if isinstance(value, DTensor):
            value = value.full_tensor()
        found[name.removeprefix("module.")] = value.cpu()
    return found


def own_device():
    return torch.device("sim", dist.get_rank())


def own_rows():
    rank, k = dist.get_rank(), dist.get_world_size()
    return (t.chunk(k)[rank].to(own_device()) for t in words())


# -- data parallel


def ddp(**settings):
    model = transformer().to(own_device())
    model = DistributedDataParallel(model, bucket_cap_mb=0.01, **settings)
    return whole(train(model, *own_rows()))


def ddp_views():
    return ddp(gradient_as_bucket_view=True)


def ddp_no_sync():
    """Each rank takes its rows one by one, and sends after the last."""
    model = DistributedDataParallel(transformer().to(own_device()))
    x, y = own_rows()
    optimizer, parts = descent(model), list(zip(x.split(1), y.split(1)))
    for _ in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            for a, b in parts[:-1]:
                (loss_of(model(a), b) / len(parts)).backward()
        a, b = parts[-1]
        (loss_of(model(a), b) / len(parts)).backward()
        optimizer.step()
    return whole(model)


def zero():
    model = DistributedDataParallel(transformer().to(own_device()))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=RATE, momentum=0.9
    )
    return whole(train(model, *own_rows(), optimizer))


# -- fully sharded


def sharded(model, mesh=None, **settings):
    mesh = mesh or init_device_mesh("sim", (dist.get_world_size(),))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def fsdp(**settings):
    model = sharded(transformer().to(own_device()), **settings)
    return whole(train(model, *own_rows()))


def fsdp_kept():
    return fsdp(reshard_after_forward=False)


def fsdp_offloaded():
    return fsdp(offload_policy=CPUOffloadPolicy(pin_memory=False))


def fsdp_mixed():
    return fsdp(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def fsdp_hybrid():
    """Two replicas, each sharded."""
    shape = 2, dist.get_world_size() // 2
    names = "replica", "shard"
    mesh = init_device_mesh("sim", shape, mesh_dim_names=names)
    return fsdp(mesh=mesh)


# -- layers on several ranks

PLAN = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
PLAN |= {name: RowwiseParallel() for name in ("o", "down")}


def split(model):
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    for block in blocks_of(model):
        parallelize_module(block, mesh, PLAN)
    return model, mesh


def everything():
    return (t.to(own_device()) for t in words())


def tensor_parallel():
    model, _ = split(transformer().to(own_device()))
    # PyTorch's foreach takes no list of split and plain tensors.
    return whole(train(model, *everything(), descent(model, foreach=False)))


def tensor_parallel_loss():
    """The scores stay split, and so does the loss."""
    model, mesh = split(transformer().to(own_device()))
    head = ColwiseParallel(use_local_output=False)
    model[-1] = parallelize_module(model[-1], mesh, head)
    with loss_parallel():
        train(model, *everything(), descent(model, foreach=False))
    return whole(model)


ENGINES = {
    engine.__name__: engine
    for engine in (
        *(ddp, ddp_views, ddp_no_sync, zero),
        *(fsdp, fsdp_kept, fsdp_offloaded, fsdp_mixed, fsdp_hybrid),
        *(tensor_parallel, tensor_parallel_loss),
    )
}
TOLERANCES = {"fsdp_mixed": 0.02}  # bfloat16 in forward and backward
