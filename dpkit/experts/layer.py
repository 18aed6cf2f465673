"""A layer of experts that ranks share.

A rank has E/k experts. What arrives is in order of the ranks, and within them
of the experts: two experts, a and b, and rows of three ranks::

    arrives    a0 a0 b0 | b1 | a2 b2 b2       from ranks 0, 1, 2
    computed   a(a0 a0 a2)  b(b0 b1 b2 b2)    an expert computes all its rows
    goes back  a0 a0 b0 | b1 | a2 b2 b2
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit.arguments import check_group
from dpkit.experts.routing import Routing
from dpkit.experts.rows import Counts, exchange_counts, exchange_rows

Expert = Callable[[Tensor], Tensor]
RowExchange = Callable[
    [Tensor, Counts, Counts, dist.ProcessGroup | None], Tensor
]


def own_experts(
    experts: Sequence[Any], group: dist.ProcessGroup | None = None
) -> list[Any]:
    """Return this rank's experts out of all of them.

    Args:
        experts: All experts of the layer, E of them.
        group: The k ranks. None: all ranks.

    Raises:
        ValueError: the ranks do not divide the experts.

    Example:
        >>> from dpkit.experts import own_experts
        >>> dpkit.sim.launch(lambda: own_experts("abcdef"), 3)
        [['a', 'b'], ['c', 'd'], ['e', 'f']]
    """
    check_group(group)
    world_size = dist.get_world_size(group)
    if len(experts) % world_size:
        raise ValueError(
            "the ranks do not divide the experts (experts: "
            f"{len(experts)}, ranks: {world_size})"
        )
    each = len(experts) // world_size
    first = each * dist.get_rank(group)
    return list(experts[first : first + each])


def expert_parallel(
    x: Tensor,
    routing: Routing,
    experts: Sequence[Expert],
    group: dist.ProcessGroup | None = None,
    exchange: RowExchange = exchange_rows,
) -> Tensor:
    """Return what the experts of all ranks make of this rank's tokens.

    Every rank of the group calls it with its own tokens, and calls backward.
    The gradients of an expert are then those of all tokens, because all of
    them came to its rank: they need no allreduce. Every rank has the router,
    and its gradients do need one.

    Args:
        x: The tokens of this rank, of shape (tokens, w).
        routing: Where they go, by :func:`dpkit.experts.route_tokens`.
        experts: Those of this rank, E/k functions of (rows, w).
        group: The k ranks. None: all ranks.
        exchange: Sends rows from rank to rank, as
            :func:`dpkit.experts.exchange_rows` does.

    Returns:
        A tensor of the shape of ``x``: for each token the sum of what its
        experts gave, by their weights. A token that was dropped everywhere
        has zeros.

    Raises:
        ValueError: the ranks have not as many experts as the routing counts.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from dpkit.experts import expert_parallel, own_experts
        >>> from dpkit.experts import route_tokens
        >>> def outputs():
        ...     factors = torch.tensor([1.0, 10.0, 100.0], device="sim")
        ...     experts = [lambda x, f=f: f * x for f in factors]
        ...     scores = 99 * torch.eye(3, device="sim")  # token i, expert i
        ...     x = torch.full((3, 1), 2.0 + dist.get_rank(), device="sim")
        ...     routing = route_tokens(scores)
        ...     y = expert_parallel(x, routing, own_experts(experts))
        ...     return y.flatten().tolist()
        >>> dpkit.sim.launch(outputs, 3)
        [[2.0, 20.0, 200.0], [3.0, 30.0, 300.0], [4.0, 40.0, 400.0]]
    """
    check_group(group)
    world_size = dist.get_world_size(group)
    num_experts = len(routing.counts)
    if num_experts != world_size * len(experts):
        raise ValueError(
            "the routing counts other experts than the ranks have (counted: "
            f"{num_experts}, on this rank: {len(experts)}, ranks: "
            f"{world_size})"
        )
    arriving = exchange_counts(routing.counts, group)
    # Rank by rank, as lists: here the host waits for the device.
    gives = routing.counts.view(world_size, -1).sum(1).tolist()
    by_rank = arriving.view(world_size, -1).tolist()
    takes = [sum(counts) for counts in by_rank]
    rows = exchange(x[routing.token], gives, takes, group)
    made = exchange(_compute(rows, by_rank, experts), takes, gives, group)
    weighted = made * routing.weight.unsqueeze(1).to(made.dtype)
    return torch.zeros_like(x).index_add(0, routing.token, weighted)


def _compute(
    rows: Tensor, by_rank: list[Counts], experts: Sequence[Expert]
) -> Tensor:
    """Return what experts make of rows, in the order of the rows.

    Args:
        rows: By rank, and within a rank by expert.
        by_rank: How many rows of each rank are for each expert.
        experts: Those of this rank.
    """
    sizes = [count for counts in by_rank for count in counts]
    parts = rows.split(sizes)
    num_experts = len(experts)
    made: list[tuple[Tensor, ...]] = []
    for number, expert in enumerate(experts):
        output = expert(torch.cat(parts[number::num_experts]))
        made.append(output.split([counts[number] for counts in by_rank]))
    return torch.cat(
        [of_expert[rank] for rank in range(len(by_rank)) for of_expert in made]
    )
