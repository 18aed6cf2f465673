"""What shows that ranks are not alike, and is refused.

Ranks that are alike do the same. What they do is looked at where they come to
a collective, where they lie when a group of them is made, and whether they ask
which rank they are.
"""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch

from dpkit.library import LIBRARY
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import DEVICES_OF_TORCH, simulation
from dpkit.sim.hardware import Cluster
from dpkit.sim.places import LIBRARIES, OWN_FILES

# Collectives of parts: NCCL has one size for all of them.
IN_PARTS = {"allgather", "reduce_scatter", "all_to_all", "scatter", "gather"}
# What each rank does in these, every other does, too.
ONE_ROLE = {"ring", "direct", "recursive_doubling", "halving_doubling"}
# What tells the rank, in the files of PyTorch.
ASKING = {
    "get_rank",
    "get_local_rank",
    "get_node_local_rank",
    "get_group_rank",
}
NOT_THE_PROGRAM = (*LIBRARIES, OWN_FILES)


def check_machine() -> None:
    """Refuse a machine on which one rank cannot stand for all.

    Raises:
        ValueError: the machine has values, or a rank that is slow.
    """
    backing = simulation.backing
    slow = simulation.clock.cluster.slow
    if not backing.type == "meta":
        raise ValueError(
            "ranks that are alike need a machine without numbers (backing: "
            f'{str(backing)!r}); dpkit.sim.machine(backing="meta") is one'
        )
    if slow:
        raise ValueError(f"a slow rank is not like the others (slow: {slow})")


def check_contribution(
    kind: str, tensors: Any, root: int, group_rank: int
) -> None:
    """Refuse a collective in which ranks do not all do the same.

    Args:
        kind: The kind of collective, such as "allgather".
        tensors: What the rank that runs contributes.
        root: The place of the root in the group; without one, of this rank.
        group_rank: This rank, among those of the group.

    Raises:
        ValueError: its parts differ in size, or its root does not run.
    """
    if root != group_rank:
        raise ValueError(
            f"the root of {kind} has to be the rank that runs, the one of "
            f"all that are alike (root: {root}, runs: {group_rank})"
        )
    if kind not in IN_PARTS:
        return
    sizes = {x.numel() for x in tensors_in(tensors)}
    one_behind_another = len(tensors_in(tensors)) == 2  # all in one tensor
    if len(sizes) > 1 and not one_behind_another:
        found = ", ".join(map(str, sorted(sizes)))
        raise ValueError(
            f"ranks that are alike send parts of one size ({kind}, elements "
            f"of the parts: {found})"
        )


def check_places(
    ranks: Sequence[int], world_size: int, cluster: Cluster
) -> None:
    """Refuse a group whose ranks have unequal places in the machine.

    The other ranks are in groups that lie like this one.

    Raises:
        ValueError: they are not; or nodes have unequal numbers of ranks of a
            group; or several groups send over one path.
    """
    listed = _listed(ranks)
    groups = _groups_like(ranks, world_size)
    found = {tuple(_counts(map(cluster.node_of, g))) for g in groups}
    if len(found) > 1 or len(set(*found)) > 1:
        counts = "; ".join(", ".join(map(str, c)) for c in sorted(found))
        raise ValueError(
            "ranks that are alike lie equally on all nodes (group of ranks: "
            f"{listed}; ranks on each node: {counts})"
        )
    if cluster.link.peer_to_peer or len(ranks) == 1:
        return
    on_paths = _counts(map(cluster.switch_of, ranks))
    of_all = _counts(map(cluster.switch_of, range(world_size)))
    if len({*on_paths, *of_all}) > 1:
        raise ValueError(
            "ranks that are alike share a path with their own group alone, "
            f"and equally (link: {cluster.link.name}, group of ranks: "
            f"{listed}, on a path: {max(on_paths)} of {max(of_all)})"
        )


def check_sent(ranks: Sequence[int], what: str) -> None:
    """Refuse messages that would not all take the same time.

    Raises:
        ValueError: they share a path; or a device has no number in torch.
    """
    cluster = simulation.clock.cluster
    if max(ranks) >= DEVICES_OF_TORCH:
        raise ValueError(
            f"{what} sends messages to devices that have no number in torch "
            f"(rank: {max(ranks)}, numbers: 0 to {DEVICES_OF_TORCH - 1})"
        )
    on_a_path = max(_counts(map(cluster.switch_of, ranks)))
    if on_a_path > 1 and not cluster.link.peer_to_peer:
        raise ValueError(
            f"{what} sends messages that take turns on a path, so that ranks "
            f"do not stay alike (link: {cluster.link.name}, ranks on a path: "
            f"{on_a_path})"
        )


def check_messages(
    ranks: Sequence[int], world_size: int, algorithm: str
) -> None:
    """Refuse a group whose messages differ from rank to rank.

    Raises:
        ValueError: ranks have several roles; or they send over several links,
            and not only in one group; or as for :func:`check_sent`.
    """
    check_sent(ranks, algorithm)
    if algorithm not in ONE_ROLE:
        raise ValueError(
            f"ranks that are alike have one role in a collective (algorithm: "
            f"{algorithm!r}, with one role: {', '.join(sorted(ONE_ROLE))}, "
            f"{LIBRARY})"
        )
    cluster = simulation.clock.cluster
    nodes = len(set(map(cluster.node_of, range(world_size))))
    if 1 < nodes < world_size and 1 < len(ranks) < world_size:
        raise ValueError(
            "messages in nodes and between them take unequal times, so that "
            "groups of ranks do not stay alike (group of ranks: "
            f"{_listed(ranks)}, of {world_size} on {nodes} nodes); "
            f'algorithm="{LIBRARY}" sends all at once'
        )


def _counts(places: Iterable[Hashable]) -> list[int]:
    return sorted(Counter(places).values())


# A mesh of 2 × 2 has groups along both of its axes. Rank 0 is in two of them,
# and knows of the others:
#
#     its group    that of the others
#     0 1          2 3
#     0 2          1 3


def _groups_like(ranks: Sequence[int], world_size: int) -> list[list[int]]:
    """Return the groups of all ranks, which lie like that of rank 0.

    Raises:
        ValueError: groups that lie so do not hold each rank once.
    """
    left = set(range(world_size))
    groups = []
    for first in range(world_size):
        if first in left:
            group = [first + rank - ranks[0] for rank in ranks]
            if not left.issuperset(group):
                raise ValueError(
                    "ranks that are alike are in groups that are alike (group "
                    f"of ranks: {_listed(ranks)}, of {world_size})"
                )
            left -= set(group)
            groups.append(group)
    return groups


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks in words: "0, 8, …, 56"."""
    numbers = [str(rank) for rank in ranks]
    return ", ".join(
        numbers if len(numbers) < 9 else [*numbers[:2], "…", numbers[-1]]
    )


def check_asker() -> None:
    """Raise RuntimeError if the program asks which rank it is.

    The library and the files of PyTorch may ask.
    """
    frame = sys._getframe(2)
    while frame.f_code.co_name in ASKING and _is_of_torch(frame):
        assert frame.f_back is not None
        frame = frame.f_back
    file = frame.f_code.co_filename
    if not file.startswith(NOT_THE_PROGRAM):
        raise RuntimeError(
            "a rank of those that are alike does not ask which one it is "
            f"(line {frame.f_lineno} of {file}): the others would do "
            'something else. Its device is "sim"'
        )


def _is_of_torch(frame: Any) -> bool:
    return bool(frame.f_code.co_filename.startswith(torch.__path__[0]))
