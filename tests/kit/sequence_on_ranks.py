"""Attention of a cut sequence: what ranks run, and what one device does."""

import torch
import torch.distributed as dist
from torch.nn import functional as F

from dpkit.processes import rank_device
from dpkit.sequence import (
    BY_PRODUCTS,
    FUSED,
    join_sequence,
    own_part,
    ring_attention,
    ulysses_attention,
)

SHAPE = 2, 4, 48, 8  # 2, 3 and 4 ranks divide 48, and so do twice as many
# Name -> the attention, and whether the parts are balanced.
WAYS = {
    "ring": (ring_attention, False),
    "balanced ring": (ring_attention, True),
    "ulysses": (ulysses_attention, False),
}
KERNELS = {"by products": BY_PRODUCTS, "fused": FUSED}


def wholes(dtype=torch.float64, shape=SHAPE, seed=0):
    """Return queries, keys, values and a gradient, equal on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    return [torch.randn(shape, **draw).to(dtype) for _ in range(4)]


def one_device(causal, dtype=torch.float64, shape=SHAPE, seed=0):
    """Return outputs and gradients of q, k and v, as PyTorch has them."""
    *three, gradient = wholes(dtype, shape, seed)
    leaves = [x.requires_grad_() for x in three]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    out.backward(gradient)
    return [out.detach(), *[x.grad for x in leaves]]


def attend(way, causal, kernel, dtype=torch.float64, group=None, seed=0):
    """Return this rank's part of the same, on the CPU."""
    attention, balanced = WAYS[way]
    options = {"causal": causal, "group": group}
    if attention is ring_attention:
        options |= {"balanced": balanced, "kernel": KERNELS[kernel]}
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device = rank_device()
    *three, gradient = (
        own_part(x, 2, rank=rank, world_size=world_size, balanced=balanced).to(
            device
        )
        for x in wholes(dtype, seed=seed)
    )
    leaves = [x.requires_grad_() for x in three]
    out = attention(*leaves, **options)
    out.backward(gradient)
    found = out, *[x.grad for x in leaves]
    assert all(x.dtype == dtype for x in found)
    return [x.detach().cpu() for x in found]


CASES = [
    (way, causal, kernel)
    for way, (attention, _) in WAYS.items()
    for causal in (False, True)
    for kernel in (KERNELS if attention is ring_attention else [""])
]


def all_cases():
    """Return what each case leaves on this rank."""
    return {case: attend(*case) for case in CASES}


def in_groups(case, size):
    """Return what a case leaves where the ranks are in groups of a size.

    Each group has sequences of its own: group g those of seed g. Else what
    comes from another group would be what this one expects. Its ranks are no
    neighbours, or a rank in the world would do for one in the group: of four
    ranks in groups of two, 0 and 2, 1 and 3.
    """
    world = range(dist.get_world_size())
    count = len(world) // size
    groups = [dist.new_group(list(world[g::count])) for g in range(count)]
    number = dist.get_rank() % count
    return attend(*case, group=groups[number], seed=number)


def largest_difference(ranks, case, dtype=torch.float64, seed=0):
    """Return how far the joined parts of all ranks are from one device."""
    way, causal, _ = case
    _, balanced = WAYS[way]
    expected = one_device(causal, dtype, seed=seed)
    return max(
        float((join_sequence(parts, 2, balanced) - whole).abs().max())
        for parts, whole in zip(zip(*ranks, strict=True), expected)
    )
