"""The groups of a mesh: which ranks each rank talks to, and why."""

import torch.distributed as dist

from dpbook.mesh.layouts import Layout, make_mesh

Groups = dict[str, list[int]]  # the ranks of a group, by dimension


def groups_on_rank(layout: Layout) -> Groups:
    """Return the ranks of each group that this rank is in."""
    mesh = make_mesh(layout)
    return {
        name: dist.get_process_group_ranks(mesh.get_group(name))
        for name in layout.names
    }


def groups_of(ranks: list[Groups], name: str) -> list[list[int]]:
    """Return all groups of a dimension, each once.

    Args:
        ranks: What :func:`groups_on_rank` returns, of all ranks.
        name: The dimension.

    Example:
        >>> ranks = [{"tp": [0, 1]}, {"tp": [0, 1]}]
        >>> groups_of(ranks, "tp")
        [[0, 1]]
    """
    found: list[list[int]] = []
    for groups in ranks:
        if groups[name] not in found:
            found.append(groups[name])
    return found


def is_across(group: list[int], on_node: int) -> bool:
    """Return whether a group has ranks of several nodes.

    Example:
        >>> is_across([0, 4], on_node=4), is_across([1, 3], on_node=4)
        (True, False)
    """
    return len({rank // on_node for rank in group}) > 1
