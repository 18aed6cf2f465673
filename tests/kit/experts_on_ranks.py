"""A layer of experts: what ranks run, and what one device does."""

import torch
import torch.distributed as dist
from torch import nn

from dpkit.experts import expert_parallel, own_experts, route_tokens
from dpkit.experts.rows import exchange_rows
from dpkit.processes import rank_device

WIDTH, INNER, NUM_EXPERTS, NUM_TOKENS = 6, 10, 12, 15
# top, capacity, whether all tokens like the first two experts best.
CASES = [
    (top, capacity, crowded)
    for top in (1, 2)
    for capacity in (None, 2)
    for crowded in (False, True)
]


def by_library(x, given, taken, group):
    """Exchange rows by PyTorch's own operator."""
    from torch.distributed._functional_collectives import (
        all_to_all_single_autograd,
    )

    group = group or dist.group.WORLD
    return all_to_all_single_autograd(x.contiguous(), taken, given, group)


EXCHANGES = {"by hand": exchange_rows, "by library": by_library}


def make_layer(crowded):
    """Return a router and all experts, equal on all ranks."""
    torch.manual_seed(0)
    router = nn.Linear(WIDTH, NUM_EXPERTS).double()
    if crowded:
        with torch.no_grad():
            router.bias[:2] += 9
    experts = [
        nn.Sequential(
            nn.Linear(WIDTH, INNER), nn.Tanh(), nn.Linear(INNER, WIDTH)
        ).double()
        for _ in range(NUM_EXPERTS)
    ]
    return router, experts


def tokens_and_gradients(num_ranks, seed=0):
    """Return the tokens of all ranks, and gradients of their outputs."""
    generator = torch.Generator().manual_seed(1 + seed)
    shape = num_ranks, NUM_TOKENS, WIDTH
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(shape, **draw), torch.randn(shape, **draw)


def run(case, exchange="by hand", group=None, seed=0):
    """Return outputs, and gradients of tokens, router and own experts."""
    top, capacity, crowded = case
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device = rank_device()
    router, experts = make_layer(crowded)
    router.to(device)
    mine = [expert.to(device) for expert in own_experts(experts, group)]
    x, gradient = (
        t[rank].to(device) for t in tokens_and_gradients(world_size, seed)
    )
    x.requires_grad_()
    routing = route_tokens(router(x), top, capacity)
    y = expert_parallel(x, routing, mine, group, EXCHANGES[exchange])
    y.backward(gradient)
    for p in router.parameters():
        dist.all_reduce(p.grad, group=group)
    found = {
        "output": y.detach(),
        "tokens": x.grad,
        "router": router.weight.grad,
        "experts": torch.stack(
            [gradients_of(expert, like=y) for expert in mine]
        ),
    }
    return {name: tensor.cpu() for name, tensor in found.items()}


def gradients_of(expert, like):
    """Return all gradients of an expert, which may have met no token."""
    return torch.cat(
        [
            (like.new_zeros(p.shape) if p.grad is None else p.grad).flatten()
            for p in expert.parameters()
        ]
    )


def one_device(case, num_ranks, seed=0):
    """Return the same for all ranks: each token by itself, on the CPU.

    Room is counted for the tokens of each rank, first choices first.
    """
    top, capacity, crowded = case
    router, experts = make_layer(crowded)
    X, gradients = tokens_and_gradients(num_ranks, seed)
    X.requires_grad_()
    outputs, dropped = [], 0
    for x in X:
        probabilities = router(x).softmax(1)
        taken = [0] * NUM_EXPERTS
        y = [torch.zeros(WIDTH).double() for _ in x]
        choices = [
            p.argsort(descending=True)[:top].tolist() for p in probabilities
        ]
        for place in range(top):
            for i, chosen in enumerate(choices):
                e = chosen[place]
                taken[e] += 1
                if capacity is not None and taken[e] > capacity:
                    dropped += 1
                    continue
                weight = probabilities[i, e]
                if top > 1:
                    weight = weight / probabilities[i, chosen].sum()
                y[i] = y[i] + weight * experts[e](x[i])
        outputs.append(torch.stack(y))
    out = torch.stack(outputs)
    out.backward(gradients)
    found = {
        "output": out.detach(),
        "tokens": X.grad,
        "router": router.weight.grad,
        "experts": torch.stack([gradients_of(e, like=out) for e in experts]),
    }
    return found, dropped


def largest_difference(ranks, case, seed=0):
    """Return how far what all ranks have is from one device."""
    expected, _ = one_device(case, len(ranks), seed)
    joined = {
        "output": torch.stack([r["output"] for r in ranks]),
        "tokens": torch.stack([r["tokens"] for r in ranks]),
        "experts": torch.cat([r["experts"] for r in ranks]),
    }
    apart = [(joined[name] - expected[name]).abs().max() for name in joined]
    apart += [(r["router"] - expected["router"]).abs().max() for r in ranks]
    return float(max(apart))


def all_cases(exchange="by hand"):
    """Return what each case leaves on this rank."""
    return {case: run(case, exchange) for case in CASES}


def in_groups(case, size):
    """Return what a case leaves where the ranks are in groups of a size.

    Each group has tokens of its own: group g those of seed g. Its ranks are
    no neighbours: of four ranks in groups of two, 0 and 2, 1 and 3.
    """
    world = range(dist.get_world_size())
    count = len(world) // size
    groups = [dist.new_group(list(world[g::count])) for g in range(count)]
    number = dist.get_rank() % count
    return run(case, group=groups[number], seed=number)
