"""Two ways together: rows are split over groups, the network in each.

Eight devices, two nodes of four. Each group has a replica of the network,
split by layers or by stages; equal parts of the replicas have one gradient::

    groups of neighbours           groups across the nodes

    node 0 | 0 1 2 3 |  replica 0       node 0 | 0 1 2 3 |
    node 1 | 4 5 6 7 |  replica 1       node 1 | 4 5 6 7 |
                                                 ▲   ▲     replica 0
                                                   ▲   ▲   replica 1
"""

import copy

import torch
from torch import Tensor, nn

from dpbook.splitting.three_ways import Split, Way
from dpkit.arguments import Devices
from dpkit.data_parallel import allreduce_gradients, clear_gradients, gradient


def groups_of(
    ranks: Devices, num_groups: int, neighbours: bool
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


def grid(inside: Way, num_groups: int, neighbours: bool) -> Way:
    """Return the way that splits rows over groups, and ``inside`` in each."""

    def way(net: nn.Sequential, X: Tensor, ranks: Devices) -> Split:
        groups = groups_of(ranks, num_groups, neighbours)
        # Copies, or the first part would keep the whole batch.
        parts = [part.clone() for part in X.tensor_split(num_groups)]
        splits = [
            inside(copy.deepcopy(net), part, group)
            for part, group in zip(parts, groups)
        ]
        nets = [replica for split in splits for replica in split.nets]
        params = [list(replica.parameters()) for replica in nets]
        shares = [len(part) / len(X) for part in parts]

        def step() -> None:
            clear_gradients(params)
            for split, own, share in zip(splits, params, shares):
                split.step()  # the gradients of the mean over its rows
                for p in own:
                    gradient(p).mul_(share)
            allreduce_gradients(params)

        return Split(nets, step)

    return way
