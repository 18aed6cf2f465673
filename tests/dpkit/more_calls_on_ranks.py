"""More that torch.distributed can be asked for: pairs, groups, a column.

They are added to ``CALLS``.
"""

import torch
import torch.distributed as dist

from tests.dpkit.calls_on_ranks import calling, every, numbers


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


@calling(
    "reduce_scatter, uneven",
    lambda r, k: [sum(numbers(50 + s, k, k)[r, : r + 1] for s in range(k))],
)
def reduce_scatter_uneven(here):
    out = here.empty(here.rank + 1)
    whole = numbers(50 + here.rank, here.k, here.k).to(here.device)
    dist.reduce_scatter(out, [x[: n + 1] for n, x in enumerate(whole)])
    return [out]


@calling("complex", lambda r, k: [sum(every(k, 3, 4))])
def all_reduce_complex(here):
    x = torch.view_as_complex(here.own(3, 2, 2))
    dist.all_reduce(x)
    return [torch.view_as_real(x).reshape(3, 4)]


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
