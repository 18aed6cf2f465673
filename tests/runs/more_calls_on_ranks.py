"""More that torch.distributed can be asked for: pairs, groups, a column.

They are added to ``CALLS``.
"""

import torch
import torch.distributed as dist

from tests.runs.calls_on_ranks import calling, every, numbers


@calling("send and recv", lambda r, k: [numbers((r - 1) % k, 5, 2)], least=2)
def send_and_recv(here):
    """Send once around, and come after the one before."""
    before, after = (here.rank - 1) % here.k, (here.rank + 1) % here.k
    out, group = here.empty(5, 2), here.group
    if here.rank == 0:
        dist.send(here.own(5, 2), group=group, tag=3, group_dst=after)
        dist.recv(out, group=group, tag=3, group_src=before)
    else:
        dist.recv(out, group=group, tag=3, group_src=before)
        dist.send(here.own(5, 2), group=group, tag=3, group_dst=after)
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
        (dist.isend, here.own(4), after, 1),
        (dist.isend, here.own(4), before, 2),
        (dist.irecv, outs[0], before, 1),
        (dist.irecv, outs[1], after, 2),
    ]
    messages = [
        dist.P2POp(way, x, group=here.group, tag=tag, group_peer=peer)
        for way, x, peer, tag in ways
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return outs


@calling(
    "all_reduce_coalesced", lambda r, k: [sum(every(k, n)) for n in (3, 8)]
)
def all_reduce_coalesced(here):
    xs = [here.own(3), here.own(8)]
    dist.all_reduce_coalesced(xs, group=here.group)
    return xs


@calling(
    "joined by a manager",
    lambda r, k: [torch.cat(every(k, n)) for n in (2, 5)],
)
def joined(here):
    outs = [here.empty(n * here.k) for n in (2, 5)]
    group = here.group
    manager = dist._coalescing_manager(group, here.device, async_ops=True)
    with manager as all_:
        for out, n in zip(outs, (2, 5)):
            dist.all_gather_into_tensor(out, here.own(n), group)
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
    parts = [x[: n + 1] for n, x in enumerate(whole)]
    dist.reduce_scatter(out, parts, group=here.group)
    return [out]


@calling("complex", lambda r, k: [sum(every(k, 3, 4))])
def all_reduce_complex(here):
    x = torch.view_as_complex(here.own(3, 2, 2))
    dist.all_reduce(x, group=here.group)
    return [torch.view_as_real(x).reshape(3, 4)]


@calling(
    "reduce_scatter columns", lambda r, k: [sum(every(k, k, 4))[r : r + 1, 1]]
)
def rs_column(here):
    x = here.own(here.k, 4)
    out = here.empty(1)
    column = x[:, 1].contiguous()
    dist.reduce_scatter_tensor(out, column, group=here.group)
    return [out]


@calling(
    "send column", lambda r, k: [numbers((r - 1) % k, 3, 4)[:, 1]], least=2
)
def send_column(here):
    x = here.own(3, 4)
    out = here.empty(3)
    before, after = (here.rank - 1) % here.k, (here.rank + 1) % here.k
    w = dist.isend(x[:, 1], group=here.group, group_dst=after)
    dist.recv(out, group=here.group, group_src=before)
    w.wait()
    return [out]
