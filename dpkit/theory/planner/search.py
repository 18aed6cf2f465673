"""All layouts that fit, by their seconds, and why one is behind another."""

from typing import NamedTuple

from dpkit.theory.planner.layouts import Layout
from dpkit.theory.planner.run import Memory, Run, Seconds
from dpkit.theory.units import show_memory, show_seconds


class Plan(NamedTuple):
    """A layout, what the fullest device holds, and what a step takes."""

    layout: Layout
    memory: Memory
    seconds: Seconds


class Found(NamedTuple):
    """What a search found.

    Attributes:
        num_layouts: How many there are.
        plans: Those that fit, the fastest first.
        smallest: The layout that needs the least memory; of no use but to
            tell by how much it does not fit, if none does.
    """

    num_layouts: int
    plans: list[Plan]
    smallest: Plan | None


def plan(run: Run, layout: Layout) -> Plan:
    """Return what a layout holds and takes."""
    return Plan(layout, run.memory(layout), run.seconds(layout))


def search(run: Run) -> Found:
    """Return all layouts of a run that fit, the fastest first.

    Of two that take equally long, the one with more free memory is first.

    Example:
        >>> from dpkit.theory.planner.networks import NETWORKS
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> eight = cluster(8, "v100", "nvlink2")
        >>> found = search(Run(NETWORKS["ResNet-50"], 2048, eight))
        >>> print(found.plans[0].layout)
        8 × 1 × 1, b = 256, recompute none, ZeRO-1
    """
    room = run.room
    plans, count = [], 0
    least: tuple[float, Layout] | None = None
    for layout in run.layouts():
        count += 1
        memory = run.memory(layout)
        total = memory.total
        if total <= room:
            plans.append(Plan(layout, memory, run.seconds(layout)))
        if least is None or total < least[0]:
            least = total, layout
    plans.sort(key=lambda p: (p.seconds.total, p.memory.total))
    return Found(count, plans, plan(run, least[1]) if least else None)


def others(plans: list[Plan]) -> list[Plan]:
    """Return the fastest of each way to cut: of each d × t × p."""
    first: dict[tuple[int, ...], Plan] = {}
    for each in plans:
        first.setdefault(each.layout[:3], each)
    return list(first.values())


WORDS = {
    "products": "products",
    "kernels": "other kernels",
    "messages": "messages in its layers",
    "bubble": "bubble",
    "hops": "hops between stages",
    "gradients": "messages between replicas",
}


def why(best: Plan, other: Plan) -> str:
    """Say why another layout is behind, by what differs most.

    Example:
        >>> from dpkit.theory.planner.networks import NETWORKS
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> run = Run(NETWORKS["ResNet-50"], 2048, cluster(8, "v100"))
        >>> best, second, *_ = others(search(run).plans)
        >>> print(why(best, second))  # doctest: +NORMALIZE_WHITESPACE
        4 × 1 × 2 takes 13.6 ms longer than 8 × 1 × 1: 10.9 ms more of
        bubble, 1.658 ms more of other kernels, 1.061 ms more of products.
    """
    names = [_cut(p.layout, q.layout) for p, q in _pairs(best, other)]
    more = other.seconds.total - best.seconds.total
    parts = {
        name: theirs - ours
        for name, ours, theirs in zip(
            Seconds._fields, best.seconds, other.seconds
        )
    }
    if more < best.seconds.total / 1000:
        held = show_memory(int(other.memory.total))
        return f"{names[1]} takes as long as {names[0]}, and holds {held}."
    # What is a twentieth of the difference is not worth a word.
    told = sorted(parts, key=lambda name: -abs(parts[name]))[:3]
    reasons = ", ".join(
        f"{show_seconds(abs(parts[name]))} "
        f"{'more' if parts[name] > 0 else 'less'} of {WORDS[name]}"
        for name in told
        if abs(parts[name]) > more / 20
    )
    longer = f"takes {show_seconds(more)} longer than {names[0]}"
    return f"{names[1]} {longer}: {reasons}."


def _pairs(a: Plan, b: Plan) -> list[tuple[Plan, Plan]]:
    return [(a, b), (b, a)]


def _cut(layout: Layout, other: Layout) -> str:
    """Return d × t × p, or all, where another has the same."""
    if layout[:3] != other[:3]:
        return f"{layout.data} × {layout.tensor} × {layout.pipeline}"
    return f"[{layout}]"
