"""What torch.distributed can be asked for: calls, and what they should leave.

Each call runs in a rank; ``expected(rank, k)`` is what it leaves there,
worked out on the CPU from the numbers of all ranks.
"""

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.distributed import _functional_collectives as functional

CALLS = {}  # name -> (call, expected, least number of ranks)


def numbers(rank, *shape):
    """Return the numbers of a rank, others for each."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def every(k, *shape):
    return [numbers(rank, *shape) for rank in range(k)]


def calling(name, expected, least=1):
    def add(call):
        CALLS[name] = call, expected, least
        return call

    return add


# What the rank of a call has: its number, how many there are, its device.
class Rank:
    def __init__(self, rank, k, device):
        self.rank, self.k, self.device = rank, k, device

    def own(self, *shape):
        return numbers(self.rank, *shape).to(self.device)

    def empty(self, *shape):
        out = torch.zeros(*shape, dtype=torch.float64)
        return (out - 7).to(self.device)


REDUCTIONS = {
    "sum": (ReduceOp.SUM, lambda xs: torch.stack(xs).sum(0)),
    "mean": (ReduceOp.AVG, lambda xs: torch.stack(xs).mean(0)),
    "max": (ReduceOp.MAX, lambda xs: torch.stack(xs).amax(0)),
    "min": (ReduceOp.MIN, lambda xs: torch.stack(xs).amin(0)),
}


def add_reductions(name, op, reduced):
    """Add the calls that reduce, for one way to do so."""

    @calling(f"all_reduce {name}", lambda r, k: [reduced(every(k, 7, 2))])
    def all_reduce(here):
        x = here.own(7, 2)
        dist.all_reduce(x, op)
        return [x]

    @calling(
        f"reduce {name}",
        lambda r, k: [reduced(every(k, 5))] if r == k - 1 else [],
    )
    def reduce(here):
        x = here.own(5)
        dist.reduce(x, here.k - 1, op)
        return [x] if here.rank == here.k - 1 else []

    @calling(
        f"reduce_scatter {name}",
        lambda r, k: [reduced(every(k, k, 3, 2))[r]],
    )
    def reduce_scatter(here):
        out = here.empty(3, 2)
        dist.reduce_scatter(out, list(here.own(here.k, 3, 2)), op)
        return [out]

    @calling(
        f"reduce_scatter_tensor {name}",
        lambda r, k: [reduced(every(k, k * 3, 2))[3 * r : 3 * r + 3]],
    )
    def reduce_scatter_tensor(here):
        out = here.empty(3, 2)
        dist.reduce_scatter_tensor(out, here.own(here.k * 3, 2), op)
        return [out]


for reduction in REDUCTIONS.items():
    add_reductions(reduction[0], *reduction[1])


@calling("broadcast", lambda r, k: [numbers(k // 2, 5, 3)])
def broadcast(here):
    x = here.own(5, 3)
    dist.broadcast(x, here.k // 2)
    return [x]


@calling("broadcast of integers", lambda r, k: [torch.arange(4) + k - 1])
def broadcast_integers(here):
    x = torch.arange(4).to(here.device) + here.rank
    dist.broadcast(x, here.k - 1)
    return [x]


@calling("all_gather", lambda r, k: every(k, 3, 2))
def all_gather(here):
    outs = [here.empty(3, 2) for _ in range(here.k)]
    dist.all_gather(outs, here.own(3, 2))
    return outs


@calling("all_gather, uneven", lambda r, k: [numbers(s, s) for s in range(k)])
def all_gather_uneven(here):
    outs = [here.empty(s) for s in range(here.k)]
    dist.all_gather(outs, here.own(here.rank))
    return outs


@calling("all_gather_into_tensor", lambda r, k: [torch.cat(every(k, 3, 2))])
def all_gather_into_tensor(here):
    out = here.empty(3 * here.k, 2)
    dist.all_gather_into_tensor(out, here.own(3, 2))
    return [out]


@calling("all_gather in place", lambda r, k: [torch.cat(every(k, 3))])
def all_gather_in_place(here):
    out = here.empty(3 * here.k)
    own = out[3 * here.rank : 3 * here.rank + 3]
    own.copy_(here.own(3))
    dist.all_gather_into_tensor(out, own)
    return [out]


@calling(
    "all_to_all_single",
    lambda r, k: [torch.cat([x[2 * r : 2 * r + 2] for x in every(k, 2 * k)])],
)
def all_to_all_single(here):
    out = here.empty(2 * here.k)
    dist.all_to_all_single(out, here.own(2 * here.k))
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
    dist.all_to_all_single(out, given, [rank] * k, list(range(k)))
    return [out]


@calling("all_to_all", lambda r, k: [x[r] for x in every(k, k, 3, 2)])
def all_to_all(here):
    outs = [here.empty(3, 2) for _ in range(here.k)]
    dist.all_to_all(outs, list(here.own(here.k, 3, 2)))
    return outs


@calling("scatter", lambda r, k: [numbers(k // 2, k, 3)[r]])
def scatter(here):
    out, root = here.empty(3), here.k // 2
    given = list(here.own(here.k, 3)) if here.rank == root else None
    dist.scatter(out, given, root)
    return [out]


@calling("gather", lambda r, k: every(k, 3) if r == k // 2 else [])
def gather(here):
    root = here.k // 2
    outs = None
    if here.rank == root:
        outs = [here.empty(3) for _ in range(here.k)]
    dist.gather(here.own(3), outs, root)
    return outs or []


@calling("send and recv", lambda r, k: [numbers((r - 1) % k, 5, 2)], least=2)
def send_and_recv(here):
    """Send once around, and come after the one before."""
    before, after = (here.rank - 1) % here.k, (here.rank + 1) % here.k
    out = here.empty(5, 2)
    if here.rank == 0:
        dist.send(here.own(5, 2), after, tag=3)
        dist.recv(out, before, tag=3)
    else:
        dist.recv(out, before, tag=3)
        dist.send(here.own(5, 2), after, tag=3)
    return [out]


@calling(
    "batch_isend_irecv",
    lambda r, k: [numbers((r - 1) % k, 4), numbers((r + 1) % k, 4)],
    least=2,
)
def batch_isend_irecv(here):
    before, after = (here.rank - 1) % here.k, (here.rank + 1) % here.k
    outs = [here.empty(4), here.empty(4)]
    # With two ranks both neighbours are one: a tag tells them apart.
    ways = [
        dist.P2POp(dist.isend, here.own(4), after, tag=1),
        dist.P2POp(dist.isend, here.own(4), before, tag=2),
        dist.P2POp(dist.irecv, outs[0], before, tag=1),
        dist.P2POp(dist.irecv, outs[1], after, tag=2),
    ]
    for work in dist.batch_isend_irecv(ways):
        work.wait()
    return outs


@calling(
    "all_reduce_coalesced", lambda r, k: [sum(every(k, n)) for n in (3, 8)]
)
def all_reduce_coalesced(here):
    xs = [here.own(3), here.own(8)]
    dist.all_reduce_coalesced(xs)
    return xs


@calling(
    "joined by a manager",
    lambda r, k: [torch.cat(every(k, n)) for n in (2, 5)],
)
def joined(here):
    outs = [here.empty(n * here.k) for n in (2, 5)]
    with dist._coalescing_manager(device=here.device, async_ops=True) as all_:
        for out, n in zip(outs, (2, 5)):
            dist.all_gather_into_tensor(out, here.own(n))
    all_.wait()
    return outs


def group_of(rank, k):
    """Return the ranks of the group of a rank: 0, 1 | 2, 3 | 4."""
    first = rank // 2 * 2
    return list(range(first, min(first + 2, k)))


@calling(
    "new_group",
    lambda r, k: [sum(numbers(s, 5) for s in group_of(r, k))],
)
def in_groups(here):
    groups = [
        dist.new_group(group_of(first, here.k))
        for first in range(0, here.k, 2)
    ]
    x = here.own(5)
    dist.all_reduce(x, group=groups[here.rank // 2])
    return [x]


@calling("functional all_reduce", lambda r, k: [sum(every(k, 5))])
def functional_all_reduce(here):
    return [functional.all_reduce(here.own(5), "sum", dist.group.WORLD) + 0]


@calling(
    "functional all_gather, with autograd",
    # The loss is Σ w y, with the same w on all ranks: x's gradient is k w.
    lambda r, k: [
        torch.cat(every(k, 2)),
        k * numbers(9, 2 * k)[2 * r : 2 * r + 2],
    ],
)
def functional_all_gather(here):
    x = here.own(2).requires_grad_()
    y = functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
    (y * numbers(9, 2 * here.k).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]


@calling(
    "functional reduce_scatter, with autograd",
    lambda r, k: [
        sum(every(k, 3 * k))[3 * r : 3 * r + 3],
        torch.cat([numbers(9 + s, 3) for s in range(k)]),
    ],
)
def functional_reduce_scatter(here):
    x = here.own(3 * here.k).requires_grad_()
    y = functional.reduce_scatter_tensor_autograd(
        x, "sum", 0, dist.group.WORLD
    )
    (y * numbers(9 + here.rank, 3).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]


@calling(
    "functional all_to_all, with autograd",
    lambda r, k: [
        torch.stack(every(k, k))[:, r],
        torch.stack([numbers(9 + s, k)[r] for s in range(k)]),
    ],
)
def functional_all_to_all(here):
    x, ones = here.own(here.k).requires_grad_(), [1] * here.k
    y = functional.all_to_all_single_autograd(x, ones, ones, dist.group.WORLD)
    (y * numbers(9 + here.rank, here.k).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]


@calling(
    "reduce_scatter, uneven",
    lambda r, k: [sum(numbers(50 + s, k, k)[r, : r + 1] for s in range(k))],
)
def reduce_scatter_uneven(here):
    out = here.empty(here.rank + 1)
    whole = numbers(50 + here.rank, here.k, here.k).to(here.device)
    dist.reduce_scatter(out, [x[: n + 1] for n, x in enumerate(whole)])
    return [out]


@calling("all_reduce of columns", lambda r, k: [sum(every(k, 3, 4))[:, 1]])
def all_reduce_column(here):
    x = here.own(3, 4)
    dist.all_reduce(x[:, 1])
    return [x[:, 1]]


@calling("complex", lambda r, k: [sum(every(k, 3, 4))])
def all_reduce_complex(here):
    x = torch.view_as_complex(here.own(3, 2, 2))
    dist.all_reduce(x)
    return [torch.view_as_real(x).reshape(3, 4)]


@calling(
    "all_gather columns",
    lambda r, k: [torch.cat([x[:, 1] for x in every(k, 3, 4)])],
)
def all_gather_columns(here):
    x = here.own(3, 4)
    out = here.empty(here.k * 3)
    dist.all_gather_into_tensor(out, x[:, 1])
    return [out]


@calling(
    "all_gather lists of columns",
    lambda r, k: [x[:, 1] for x in every(k, 3, 4)],
)
def all_gather_into_columns(here):
    x = here.own(3, 4)
    outs = [here.empty(3, 2)[:, 1] for _ in range(here.k)]
    dist.all_gather(outs, x[:, 1])
    return outs


@calling("broadcast columns", lambda r, k: [numbers(0, 3, 4)[:, 1]])
def broadcast_column(here):
    x = here.own(3, 4)
    dist.broadcast(x[:, 1], 0)
    return [x[:, 1]]


@calling(
    "reduce_scatter columns", lambda r, k: [sum(every(k, k, 4))[r : r + 1, 1]]
)
def rs_column(here):
    x = here.own(here.k, 4)
    out = here.empty(1)
    dist.reduce_scatter_tensor(out, x[:, 1].contiguous())
    return [out]


@calling(
    "send column", lambda r, k: [numbers((r - 1) % k, 3, 4)[:, 1]], least=2
)
def send_column(here):
    x = here.own(3, 4)
    out = here.empty(3)
    before, after = (here.rank - 1) % here.k, (here.rank + 1) % here.k
    w = dist.isend(x[:, 1], after)
    dist.recv(out, before)
    w.wait()
    return [out]
