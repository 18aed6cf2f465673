"""Two ways together: a grid of devices, rows of it split by layers.

Eight devices, two nodes of four. The layers of each replica of the network
are split over one group; equal parts of the replicas have one gradient::

    groups of neighbours           groups across the nodes

    node 0 | 0 1 2 3 |  replica 0       node 0 | 0 1 2 3 |
    node 1 | 4 5 6 7 |  replica 1       node 1 | 4 5 6 7 |
                                                 ▲   ▲     replica 0
                                                   ▲   ▲   replica 1
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.collectives import allreduce
from dpkit.lab.splitting.three_ways import Split, Way, split_pairs


def groups_of(
    ranks: Sequence[torch.device], num_groups: int, neighbours: bool
) -> list[list[torch.device]]:
    """Return groups of devices: neighbours, or every so many.

    Example:
        >>> ranks = dpkit.devices(4, kind="sim")
        >>> [[d.index for d in g] for g in groups_of(ranks, 2, True)]
        [[0, 1], [2, 3]]
        >>> [[d.index for d in g] for g in groups_of(ranks, 2, False)]
        [[0, 2], [1, 3]]
    """
    # 8 ranks in 2 groups: 0 1 2 3 and 4 5 6 7, or 0 2 4 6 and 1 3 5 7.
    size = len(ranks) // num_groups
    starts = range(num_groups)
    if neighbours:
        return [list(ranks[i * size : (i + 1) * size]) for i in starts]
    return [list(ranks[i::num_groups]) for i in starts]


def grid(num_groups: int, neighbours: bool) -> Way:
    """Return the way that splits layers in each group and rows over groups."""

    def way(
        net: nn.Sequential, X: Tensor, ranks: Sequence[torch.device]
    ) -> Split:
        groups, size = groups_of(ranks, num_groups, neighbours), X.numel()
        splits = [split_pairs(net, group) for group in groups]
        parts = [  # copies, or the first would keep the whole batch
            [part.to(device, copy=True) for device in group]
            for part, group in zip(X.tensor_split(num_groups), groups)
        ]

        def step() -> None:
            losses = [
                F.mse_loss(output, x, reduction="sum") / size
                for split, xs in zip(splits, parts)
                for output, x in zip(split(xs), xs)
            ]
            torch.autograd.backward(losses)
            for copies in zip(*(split.parameters() for split in splits)):
                allreduce([p.grad for p in copies if p.grad is not None])

        return Split([*splits], step)

    return way
