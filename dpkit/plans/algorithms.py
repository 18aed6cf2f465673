"""All plans by name: of an allreduce, a reduce, a broadcast.

``p`` ranks, a buffer of ``n`` elements on each::

                          steps            a port sends at most
    star                  2(p - 1)         (p - 1) n
    tree                  2 ⌈lg p⌉         ⌈lg p⌉ n
    direct, ring          2(p - 1)         2 (p - 1)/p n
    recursive doubling    lg p             lg p · n             (+ 2 steps if
    halving-doubling      2 lg p           2 (p - 1)/p n         p is no power
    hierarchical          2(g - 1 + k - 1)                       of two)

The hierarchical one is for k nodes of g ranks, where p = k · g.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from dpkit.plans import direct, doubling, rings, trees
from dpkit.plans.plan import Plan
from dpkit.units import check_count, check_known, check_whole

# A new one also needs its chain in ``costs.CHAINS`` and its place in
# ``choice.CANDIDATES``; tests tell where a name is missing.
ALLREDUCE: dict[str, Callable[..., Plan]] = {
    "star": trees.star,
    "tree": trees.tree,
    "direct": direct.direct,
    "ring": rings.ring,
    "recursive_doubling": doubling.recursive_doubling,
    "halving_doubling": doubling.halving_doubling,
    "hierarchical": rings.hierarchical,
}
REDUCE = {"star": trees.star_reduce, "tree": trees.tree_reduce}
BROADCAST = {"star": trees.star_broadcast, "tree": trees.tree_broadcast}


def allreduce_plan(
    algorithm: str, p: int, ranks_per_node: int | None = None
) -> Plan:
    """Return the plan of an allreduce by the name of its algorithm.

    Args:
        algorithm: A name in ``ALLREDUCE``.
        p: The number of ranks.
        ranks_per_node: How many ranks a node has. "hierarchical" needs it,
            and the others refuse it. It may stand in the name instead:
            "hierarchical:4".

    Raises:
        ValueError: the name is unknown, or the nodes do not fit the ranks.

    Example:
        >>> plan = allreduce_plan("hierarchical", 8, ranks_per_node=4)
        >>> len(plan.steps), plan == allreduce_plan("hierarchical:4", 8)
        (8, True)
    """
    check_count("p", p)
    check_known("algorithm", str(algorithm).partition(":")[0], ALLREDUCE)
    name, _, nodes = algorithm.partition(":")
    if nodes.isdecimal() and ranks_per_node is None:
        algorithm = name
        ranks_per_node = int(nodes)
    check_known("algorithm", algorithm, ALLREDUCE)
    if algorithm == "hierarchical" and ranks_per_node is None:
        raise ValueError(
            "the hierarchical algorithm needs to know the nodes "
            '(ranks_per_node: None); for nodes of 4, name it "hierarchical:4"'
        )
    if algorithm != "hierarchical" and ranks_per_node is not None:
        raise ValueError(
            "only the hierarchical algorithm has nodes (algorithm: "
            f"{algorithm!r}, ranks_per_node: {ranks_per_node})"
        )
    if ranks_per_node is not None:
        check_whole("ranks_per_node", ranks_per_node)
    return _made(algorithm, p, ranks_per_node)


@cache
def _made(algorithm: str, p: int, ranks_per_node: int | None) -> Plan:
    """Return a plan that nobody can change, made once."""
    nodes = () if ranks_per_node is None else (ranks_per_node,)
    plan = ALLREDUCE[algorithm](p, *nodes)
    return replace(plan, steps=tuple(tuple(step) for step in plan.steps))
