"""All layouts that fit, by their seconds; why one is behind, or too large."""

from math import ceil
from typing import NamedTuple

from dpbook.planner.case import Case, StepMemory, StepSeconds
from dpbook.planner.layouts import Layout
from dpkit.units import show_memory, show_seconds


class LayoutCost(NamedTuple):
    """A layout, what the fullest device holds, and what a step takes."""

    layout: Layout
    memory: StepMemory
    seconds: StepSeconds


class SearchResult(NamedTuple):
    """What a search found."""

    num_layouts: int  #: how many there are
    plans: list[LayoutCost]  #: those that fit, the fastest first
    #: The layout that needs the least memory; of no use but to tell by how
    #: much it does not fit, if none does.
    smallest: LayoutCost | None


def plan(case: Case, layout: Layout) -> LayoutCost:
    """Return the memory and the seconds of a layout."""
    return LayoutCost(layout, case.memory(layout), case.seconds(layout))


def search(case: Case) -> SearchResult:
    """Return all layouts of a case that fit, the fastest first.

    If two take equally long, the one with more free memory is first.

    Example:
        >>> from dpbook.planner.networks import NETWORKS
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> eight = cluster(8, "v100", "nvlink2")
        >>> found = search(Case(NETWORKS["ResNet-50"], 2048, eight))
        >>> print(found.plans[0].layout)
        8 × 1 × 1, micro-batches of 256, recompute none, ZeRO-1
    """
    room = case.room
    plans = []
    count = 0
    least: tuple[float, Layout] | None = None
    for layout in case.layouts():
        count += 1
        memory = case.memory(layout)
        total = memory.total
        if total <= room:
            plans.append(LayoutCost(layout, memory, case.seconds(layout)))
        if least is None or total < least[0]:
            least = total, layout
    plans.sort(key=lambda p: (p.seconds.total, p.memory.total))
    return SearchResult(count, plans, plan(case, least[1]) if least else None)


def others(plans: list[LayoutCost]) -> list[LayoutCost]:
    """Return the fastest plan for each way to cut the devices."""
    first: dict[tuple[int, ...], LayoutCost] = {}
    for each in plans:
        first.setdefault(each.layout.cut, each)
    return list(first.values())


PART_WORDS = {
    "products": "products",
    "kernels": "other kernels",
    "messages": "messages in its layers",
    "launches": "waiting for launches",
    "bubble": "bubble",
    "hops": "hops between stages",
    "gradients": "messages between replicas",
}


def why(best: LayoutCost, other: LayoutCost) -> str:
    """Return a sentence that says where a slower layout loses its time.

    Example:
        >>> from dpbook.planner.networks import NETWORKS
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> case = Case(NETWORKS["ResNet-50"], 2048, cluster(8, "v100"))
        >>> best, second, *_ = others(search(case).plans)
        >>> print(why(best, second))  # doctest: +NORMALIZE_WHITESPACE
        4 × 1 × 2 takes 13.61 ms longer than 8 × 1 × 1: 10.9 ms more of
        bubble, 1.658 ms more of other kernels, 1.061 ms more of products.
    """
    cut = _cut(best, other)
    other_cut = _cut(other, best)
    more = other.seconds.total - best.seconds.total
    parts = {
        name: theirs - ours
        for name, ours, theirs in zip(
            StepSeconds._fields, best.seconds, other.seconds
        )
    }
    if more < best.seconds.total / 1000:
        held = show_memory(int(other.memory.total))
        return f"{other_cut} takes as long as {cut}, and holds {held}."
    # What is a twentieth of the difference is not worth a word.
    chosen = sorted(parts, key=lambda name: -abs(parts[name]))[:3]
    reasons = ", ".join(
        f"{show_seconds(abs(parts[name]))} "
        f"{'more' if parts[name] > 0 else 'less'} of {PART_WORDS[name]}"
        for name in chosen
        if abs(parts[name]) > more / 20
    )
    longer = f"takes {show_seconds(more)} longer than {cut}"
    return f"{other_cut} {longer}: {reasons}."


MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "state": "the optimizer's state",
    "activations": "activations",
}


def why_not(case: Case, layout: Layout) -> str:
    """Return a sentence that says by how much a layout does not fit, and why.

    If activations are what it holds most of, it says how many blocks they are
    of, and of how many they would fit. A block counts once for each of its
    micro-batches.

    Example:
        405 billion parameters on 8,192 H100s, as they were trained:

        >>> from dpbook.planner.networks import NETWORKS
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> many = cluster(8192, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> case = Case(NETWORKS["405B"], 2048, many)
        >>> print(why_not(case, Layout(64, 8, 16, chunks=8, zero=2)))
        ... # doctest: +NORMALIZE_WHITESPACE
        64 × 8 × 16, v = 8 does not fit: it holds 79.6 GiB, 7.598 GiB more
        than may be filled. Most are activations, 69.95 GiB, of 141 blocks at
        once; those of 125 would fit.
    """
    held = case.memory(layout)
    chunks = f", v = {layout.chunks}" if layout.chunks > 1 else ""
    name = f"{layout.words_of_cut}{chunks}"
    over = held.total - case.room
    if over <= 0:
        return f"{name} fits."
    parts = held._asdict()
    most = max(parts, key=lambda part: parts[part])
    sizes = f"{show_memory(int(held.total))}, {show_memory(int(over))} more"
    reason = f"{name} does not fit: it holds {sizes} than may be filled."
    part = f"{MEMORY_WORDS[most]}, {show_memory(int(parts[most]))}"
    blocks = ""
    if most == "activations":
        blocks = _blocks(case, layout, over)
    return f"{reason} Most are {part}{blocks}."


def _blocks(case: Case, layout: Layout, over: float) -> str:
    """Return how many blocks activations are of, and of how many they may be.

    Args:
        case: The network and its devices.
        layout: How the step is cut.
        over: The bytes that are too many.
    """
    count = case.blocks_in_flight(layout, case.fullest(layout))
    fewer = count - ceil(over / case.parts(layout).block.counts.kept)
    text = f", of {count:.0f} blocks at once"
    return f"{text}; those of {fewer:.0f} would fit" if fewer > 0 else text


def _cut(one: LayoutCost, other: LayoutCost) -> str:
    """Return the cut, or all, where another has the same."""
    if one.layout.cut == other.layout.cut:
        return f"[{one.layout}]"
    return one.layout.words_of_cut
