"""An allreduce, live: algorithm, ranks, bytes and link."""

from itertools import groupby

from dpbook.explore.curves import Axis, decades, draw_curves
from dpbook.explore.figure import Choice, LiveFigure, Number, Shown
from dpbook.plans.animation import animate_plan
from dpkit.plans import (
    Rates,
    allreduce_plan,
    choose,
    count,
    library_seconds,
    lower_bounds,
    rates_of,
)
from dpkit.plans.choice import CANDIDATES
from dpkit.plans.costs import seconds
from dpkit.sim.hardware import Cluster, cluster
from dpkit.sim.timeline.drawing import Drawing
from dpkit.units import show_bytes, show_seconds

MOST_RANKS = 8  # ranks whose messages are shown one by one
COMPARED = (*CANDIDATES, "library")
STEPS = [10 ** (3 + i / 8) for i in range(49)]  # 1 kB to 1 GB
SIZES = [m * 10**i for i in range(3, 9) for m in (1, 3)] + [10**9]
# The accelerator that has such a link; it adds up what arrives.
OWNERS = {
    "nvlink2": "v100",
    "nvlink4": "h100",
    "pcie3-p2p": "v100-pcie",
    "infiniband400": "h100",
    "ethernet100": "v100",
}


def show_collective(
    algorithm: str, ranks: int, num_bytes: int, link: str
) -> Shown:
    """Compare closed forms, and let the messages of one plan move.

    Args:
        algorithm: The one whose messages are drawn.
        ranks: How many there are. No two share a port.
        num_bytes: What each rank holds.
        link: The preset that joins all ranks.
    """
    machine = cluster(ranks, OWNERS[link], link)
    times = {n: _seconds(n, num_bytes, machine) for n in COMPARED}
    least = lower_bounds(ranks, num_bytes, _rates(machine)).seconds
    facts = [(name_of(name), show_seconds(t)) for name, t in times.items()]
    facts.append(("lower bound, whatever the messages", show_seconds(least)))
    facts.append(("the fastest by size", _winners(machine)))
    pictures = [_draw(algorithm, num_bytes, machine)]
    # A library's kernels hand their pieces round a ring as well.
    plan = allreduce_plan(algorithm.replace("library", "ring"), ranks)
    busiest = max(port.sent for port in count(plan, num_bytes))
    facts.append(("the busiest port sends", show_bytes(busiest)))
    facts.append(("messages of all ranks", f"{len(plan.messages):,}"))
    if ranks <= MOST_RANKS:
        pictures.append(animate_plan(plan))
    else:
        facts.append(("messages are drawn", f"up to {MOST_RANKS} ranks"))
    return Shown(pictures, facts, _sentence(algorithm, times))


def _sentence(algorithm: str, times: dict[str, float]) -> str:
    """Return how an algorithm stands to the fastest of the others."""
    others = [name for name in CANDIDATES if name != algorithm]
    best = min(others, key=times.__getitem__)
    taken = times[algorithm]
    factor = times[algorithm] / times[best]
    start = f"{name_of(algorithm).capitalize()}: {show_seconds(taken)}. "
    other = f"{name_of(best)} ({show_seconds(times[best])})"
    if abs(factor - 1) < 0.005:
        return f"{start}It takes as long as {other}, to half a per cent."
    if factor > 1:
        return f"{start}It takes {factor:.2f} times as long as {other}."
    return (
        f"{start}It is the fastest; {other} takes "
        f"{1 / factor:.2f} times as long."
    )


def name_of(algorithm: str) -> str:
    """Return the name of an algorithm in words, "recursive doubling"."""
    if algorithm == "library":
        return "a library's ring"
    return algorithm.replace("_doubling", " doubling").replace(
        "halving ", "halving and "
    )


def _rates(machine: Cluster) -> Rates:
    return rates_of(machine.accelerator, machine.link)


def _seconds(algorithm: str, num_bytes: float, machine: Cluster) -> float:
    """Return what an allreduce takes; a library's has its own formula."""
    ranks = range(machine.num_devices)
    if algorithm == "library":
        return library_seconds("allreduce", ranks, num_bytes, machine)
    return seconds(algorithm, len(ranks), num_bytes, _rates(machine))


def _winners(machine: Cluster) -> str:
    """Return which algorithm is the fastest by messages up to which size."""
    p = machine.num_devices
    rates = _rates(machine)
    found = []
    for name, sizes in groupby(STEPS, lambda n: choose(p, n, rates).algorithm):
        found.append((name_of(name), max(sizes)))
    *before, (last, _) = found
    up_to = [
        f"{name} up to {show_bytes(round(n, -3))}, " for name, n in before
    ]
    return "".join(up_to) + (f"then {last}" if before else last)


def _draw(algorithm: str, num_bytes: int, machine: Cluster) -> Drawing:
    """Draw seconds over bytes, a curve for each algorithm."""
    sizes = sorted({*STEPS[::4], num_bytes})
    curves = {
        name_of(name): [(n, _seconds(name, n, machine)) for n in sizes]
        for name in COMPARED
    }
    values = [t for curve in curves.values() for _, t in curve]
    title = (
        f"seconds of an allreduce by bytes: {machine.num_devices} ranks, "
        f"{machine.name}"
    )
    x = Axis("bytes on each rank", show_bytes, decades(1e3, 1e9))
    y = Axis("time", show_seconds, decades(min(values), max(values)))
    return draw_curves(
        curves, title, x, y, mark=num_bytes, chosen=name_of(algorithm)
    )


COLLECTIVES = LiveFigure(
    "collectives",
    "An allreduce: who is the fastest, and what is sent",
    show_collective,
    {
        "algorithm": Choice("algorithm", "ring", COMPARED),
        "ranks": Number("ranks", 4, tuple(range(2, 17))),
        "num_bytes": Number("on each rank", 1_000_000, SIZES, "bytes"),
        "link": Choice("link", "nvlink2", tuple(OWNERS)),
    },
    presets={
        "a small message": {
            "algorithm": "recursive_doubling",
            "num_bytes": 1000,
        },
        "all gradients of ResNet-18": {"num_bytes": 44_691_240},
        "seven ranks": {"ranks": 7},
        "a star of eight": {"algorithm": "star", "ranks": 8},
    },
)
