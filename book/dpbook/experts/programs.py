"""What each rank runs: a small layer of experts, with values."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import (
    all_to_all_single_autograd,
)
from torch.distributed.device_mesh import init_device_mesh

from dpkit import devices
from dpkit.experts import (
    Counts,
    Routing,
    exchange_rows,
    expert_parallel,
    own_experts,
    route_tokens,
)
from dpkit.processes import rank_device

WIDTH, INNER, NUM_EXPERTS, NUM_TOKENS, TOP = 6, 10, 8, 16, 2


def make_layer() -> tuple[nn.Linear, list[nn.Sequential]]:
    """Return a router and all experts, equal on all ranks."""
    torch.manual_seed(0)
    router = nn.Linear(WIDTH, NUM_EXPERTS, bias=False).double()
    experts = [
        nn.Sequential(
            nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH)
        ).double()
        for _ in range(NUM_EXPERTS)
    ]
    return router, experts


def make_tokens(k: int) -> Tensor:
    """Return the tokens of k ranks, of shape (k, 16, 6)."""
    generator = torch.Generator().manual_seed(1)
    shape = k, NUM_TOKENS, WIDTH
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def all_experts(
    x: Tensor, routing: Routing, experts: Sequence[nn.Module]
) -> Tensor:
    """Return what experts make of tokens, on a device that has them all."""
    parts = x[routing.token].split(routing.counts.tolist())
    made = torch.cat(
        [expert(part) for expert, part in zip(experts, parts, strict=True)]
    )
    weighted = made * routing.weight.unsqueeze(1)
    return torch.zeros_like(x).index_add(0, routing.token, weighted)


def step_on_one_device(k: int, capacity: int | None) -> list[Tensor]:
    """Return outputs and gradients of a step with the tokens of k ranks.

    They are computed on one device, and returned on the CPU.
    """
    (device,) = devices(1)
    router, experts = make_layer()
    for module in (router, *experts):
        module.to(device)
    outputs = []
    # One rank after the other: an expert has room for tokens of each.
    for x in make_tokens(k).to(device):
        routing = route_tokens(router(x), TOP, capacity)
        outputs.append(all_experts(x, routing, experts))
    torch.cat(outputs).square().sum().backward()
    return [
        torch.cat(outputs).detach().cpu(),
        gradients(router),
        *(gradients(expert) for expert in experts),
    ]


def step_on_rank(
    capacity: int | None = None, by_library: bool = False
) -> list[Tensor]:
    """Return outputs and gradients of a step on this rank."""
    device = rank_device()
    router, experts = make_layer()
    router.to(device)
    mine = [expert.to(device) for expert in own_experts(experts)]
    x = make_tokens(dist.get_world_size())[dist.get_rank()].to(device)
    routing = route_tokens(router(x), TOP, capacity)
    exchange = exchange_by_library if by_library else exchange_rows
    y = expert_parallel(x, routing, mine, exchange=exchange)
    torch.autograd.backward(y.square().sum())
    add_gradients(router)
    return [
        y.detach().cpu(),
        gradients(router),
        *(gradients(expert) for expert in mine),
    ]


def exchange_by_library(
    x: Tensor,
    given: Counts,
    taken: Counts,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Exchange rows by PyTorch's operator, which has a backward."""
    group = group or dist.group.WORLD
    assert group is not None
    rows: Tensor = all_to_all_single_autograd(x, taken, given, group)
    return rows


def step_in_groups(size: int) -> list[Tensor]:
    """Return outputs and gradients where each group has all experts.

    Four ranks in groups of two: ranks 0 and 1 share the experts, and so do
    ranks 2 and 3. Ranks 0 and 2 have the same experts, and so have 1 and 3.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    device = rank_device()
    mesh = init_device_mesh(
        device.type, (k // size, size), mesh_dim_names=("data", "experts")
    )
    group = mesh.get_group("experts")
    router, experts = make_layer()
    router.to(device)
    mine = [expert.to(device) for expert in own_experts(experts, group)]
    x = make_tokens(k)[rank].to(device)
    y = expert_parallel(x, route_tokens(router(x), TOP), mine, group)
    torch.autograd.backward(y.square().sum())
    add_gradients(router)  # over all ranks
    for expert in mine:
        add_gradients(expert, mesh.get_group("data"))
    return [
        y.detach().cpu(),
        gradients(router),
        *(gradients(expert) for expert in mine),
    ]


def add_gradients(
    module: nn.Module, group: dist.ProcessGroup | None = None
) -> None:
    """Add up the gradients of a module over the ranks of a group."""
    for p in module.parameters():
        assert p.grad is not None
        dist.all_reduce(p.grad, group=group)


def gradients(module: nn.Module) -> Tensor:
    """Return all gradients; zeros for those of an expert without tokens."""
    return torch.cat(
        [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
            for p in module.parameters()
        ]
    ).cpu()


def largest_difference(
    ranks: Sequence[Sequence[Tensor]],
    capacity: int | None = None,
    group_size: int | None = None,
) -> float:
    """Return how far all ranks are from one device.

    Args:
        ranks: What each rank has: outputs, and the gradients of its router
            and of its experts.
        capacity: How many tokens of a rank an expert takes; None: all.
        group_size: How many ranks share the experts; None: all.
    """
    output, router, *experts = step_on_one_device(len(ranks), capacity)
    found = torch.cat([rank[0] for rank in ranks])
    apart = [(found - output).abs().max()]
    apart += [(rank[1] - router).abs().max() for rank in ranks]
    size = group_size or len(ranks)
    for first in range(0, len(ranks), size):
        group = ranks[first : first + size]
        mine = [gradient for rank in group for gradient in rank[2:]]
        apart += [
            (x - y).abs().max() for x, y in zip(mine, experts, strict=True)
        ]
    return float(max(apart))
