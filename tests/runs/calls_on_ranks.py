"""What torch.distributed can be asked for: calls, and what they should leave.

Each call runs in a rank; ``expected(rank, k)`` is what it leaves there,
worked out on the CPU from the numbers of all ranks. Ranks are those in a
group: all of them, or one of several groups that call side by side.
"""

from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

CALLS = {}  # name -> (call, expected, least number of ranks)

# The group that calls, or whose results are worked out: 0 is that of all.
GROUP = ContextVar("GROUP", default=0)


def numbers(rank, *shape):
    """Return the numbers of a rank, others for each and in each group.

    Groups of equal numbers would not show what goes to the wrong group.
    """
    seed = 100 + rank + 1000 * GROUP.get()
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def every(k, *shape):
    return [numbers(rank, *shape) for rank in range(k)]


def calling(name, expected, least=1):
    def add(call):
        CALLS[name] = call, expected, least
        return call

    return add


# What the rank of a call has: its number in the group, how many there are,
# its device, and the group.
class Rank:
    def __init__(self, rank, k, device, group=None):
        self.rank, self.k, self.device = rank, k, device
        self.group = group or dist.group.WORLD

    def own(self, *shape):
        return numbers(self.rank, *shape).to(self.device)

    def empty(self, *shape):
        out = torch.zeros(*shape, dtype=torch.float64)
        return (out - 7).to(self.device)


def call_in_groups(name, kind):
    """Make a call among the even ranks, and another among the odd ones."""
    rank, size = dist.get_rank(), dist.get_world_size()
    members = [list(range(first, size, 2)) for first in (0, 1)]
    group = [dist.new_group(ranks) for ranks in members][rank % 2]
    GROUP.set(1 + rank % 2)
    place, size = dist.get_rank(group), dist.get_world_size(group)
    here = Rank(place, size, torch.device(kind), group)
    return CALLS[name][0](here)


REDUCTIONS = {
    "sum": (ReduceOp.SUM, lambda xs: torch.stack(xs).sum(0)),
    "mean": (ReduceOp.AVG, lambda xs: torch.stack(xs).mean(0)),
    "max": (ReduceOp.MAX, lambda xs: torch.stack(xs).amax(0)),
    "min": (ReduceOp.MIN, lambda xs: torch.stack(xs).amin(0)),
    "product": (ReduceOp.PRODUCT, lambda xs: torch.stack(xs).prod(0)),
}


def add_reductions(name, op, reduced):
    """Add the calls that reduce, for one way to do so."""

    @calling(f"all_reduce {name}", lambda r, k: [reduced(every(k, 7, 2))])
    def all_reduce(here):
        x = here.own(7, 2)
        dist.all_reduce(x, op, here.group)
        return [x]

    @calling(
        f"reduce {name}",
        lambda r, k: [reduced(every(k, 5))] if r == k - 1 else [],
    )
    def reduce(here):
        x = here.own(5)
        dist.reduce(x, op=op, group=here.group, group_dst=here.k - 1)
        return [x] if here.rank == here.k - 1 else []

    @calling(
        f"reduce_scatter {name}",
        lambda r, k: [reduced(every(k, k, 3, 2))[r]],
    )
    def reduce_scatter(here):
        out = here.empty(3, 2)
        given = list(here.own(here.k, 3, 2))
        dist.reduce_scatter(out, given, op, here.group)
        return [out]

    @calling(
        f"reduce_scatter_tensor {name}",
        lambda r, k: [reduced(every(k, k * 3, 2))[3 * r : 3 * r + 3]],
    )
    def reduce_scatter_tensor(here):
        out = here.empty(3, 2)
        given = here.own(here.k * 3, 2)
        dist.reduce_scatter_tensor(out, given, op, here.group)
        return [out]


for reduction in REDUCTIONS.items():
    add_reductions(reduction[0], *reduction[1])


@calling("broadcast", lambda r, k: [numbers(k // 2, 5, 3)])
def broadcast(here):
    x = here.own(5, 3)
    dist.broadcast(x, group=here.group, group_src=here.k // 2)
    return [x]


def whole_numbers(rank):
    return torch.arange(4) + rank + 100 * GROUP.get()


@calling("broadcast of integers", lambda r, k: [whole_numbers(k - 1)])
def broadcast_integers(here):
    x = whole_numbers(here.rank).to(here.device)
    dist.broadcast(x, group=here.group, group_src=here.k - 1)
    return [x]


@calling("all_gather", lambda r, k: every(k, 3, 2))
def all_gather(here):
    outs = [here.empty(3, 2) for _ in range(here.k)]
    dist.all_gather(outs, here.own(3, 2), here.group)
    return outs


@calling("all_gather, uneven", lambda r, k: [numbers(s, s) for s in range(k)])
def all_gather_uneven(here):
    outs = [here.empty(s) for s in range(here.k)]
    dist.all_gather(outs, here.own(here.rank), here.group)
    return outs


@calling("all_gather_into_tensor", lambda r, k: [torch.cat(every(k, 3, 2))])
def all_gather_into_tensor(here):
    out = here.empty(3 * here.k, 2)
    dist.all_gather_into_tensor(out, here.own(3, 2), here.group)
    return [out]


@calling("all_gather in place", lambda r, k: [torch.cat(every(k, 3))])
def all_gather_in_place(here):
    out = here.empty(3 * here.k)
    own = out[3 * here.rank : 3 * here.rank + 3]
    own.copy_(here.own(3))
    dist.all_gather_into_tensor(out, own, here.group)
    return [out]


@calling(
    "all_to_all_single",
    lambda r, k: [torch.cat([x[2 * r : 2 * r + 2] for x in every(k, 2 * k)])],
)
def all_to_all_single(here):
    out = here.empty(2 * here.k)
    dist.all_to_all_single(out, here.own(2 * here.k), group=here.group)
    return [out]


def cut(x, k, s):
    """Return part s of 0 + 1 + … + k - 1 rows."""
    return x.split(list(range(k)))[s]


@calling(
    "all_to_all_single, uneven",
    lambda r, k: [
        torch.cat([cut(x, k, r) for x in every(k, k * (k - 1) // 2, 2)])
    ],
)
def all_to_all_uneven(here):
    k, rank = here.k, here.rank
    out = here.empty(k * rank, 2)
    given = here.own(k * (k - 1) // 2, 2)
    parts = [rank] * k, list(range(k))
    dist.all_to_all_single(out, given, *parts, here.group)
    return [out]


@calling("all_to_all", lambda r, k: [x[r] for x in every(k, k, 3, 2)])
def all_to_all(here):
    outs = [here.empty(3, 2) for _ in range(here.k)]
    dist.all_to_all(outs, list(here.own(here.k, 3, 2)), here.group)
    return outs


@calling("scatter", lambda r, k: [numbers(k // 2, k, 3)[r]])
def scatter(here):
    out, root = here.empty(3), here.k // 2
    given = list(here.own(here.k, 3)) if here.rank == root else None
    dist.scatter(out, given, group=here.group, group_src=root)
    return [out]


@calling("gather", lambda r, k: every(k, 3) if r == k // 2 else [])
def gather(here):
    root = here.k // 2
    outs = None
    if here.rank == root:
        outs = [here.empty(3) for _ in range(here.k)]
    dist.gather(here.own(3), outs, group=here.group, group_dst=root)
    return outs or []
