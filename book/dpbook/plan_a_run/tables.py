"""Tables of what layouts hold and take, and of how far off such plans were."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from dpbook.limits.comparisons import (
    Comparison,
    mean_factor,
    worst,
)
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.search import LayoutCost
from dpkit.theory.tables import Table
from dpkit.theory.units import show_factor

GIB = 2**30
FAR = 1.15  # a factor that is named wherever the planner is used
CUT = "d × t × p | b | v | recompute | ZeRO"


def _cut(layout: Layout) -> tuple[object, ...]:
    """Return the first cells of a row; the cut does not break into lines."""
    cut = " × ".join(map(str, layout[:3])).replace(" ", "\xa0")
    chunks = layout.chunks, layout.recompute, layout.zero
    return cut, layout.micro_batch, *chunks


def memory_table(case: Case, layouts: Iterable[Layout]) -> Table:
    """Return the GiB of the fullest device, and whether a layout fits."""
    parts = "weights:.1f | gradients:.1f | state:.1f | activations:.1f"
    table = Table(f"{CUT} | {parts} | GiB:.1f | fits")
    for layout in layouts:
        held = case.memory(layout)
        sizes = (size / GIB for size in (*held, held.total))
        fits = "yes" if held.total <= case.room else "no"
        table.add(*_cut(layout), *sizes, fits)
    return table


def seconds_table(plans: Iterable[LayoutCost]) -> Table:
    """Return what a step takes, and the share of each part.

    Hops are counted with the bubble.
    """
    parts = "products:.0% | kernels:.0% | in layers:.0% | launches:.0%"
    shares_of = f"{parts} | bubble:.0% | gradients:.0%"
    table = Table(f"{CUT} | GiB:.1f | s:.3g | {shares_of}")
    for layout, held, seconds in plans:
        *inside, bubble, hops, gradients = seconds
        parts_of = *inside, bubble + hops, gradients
        shares = (part / seconds.total for part in parts_of)
        table.add(*_cut(layout), held.total / GIB, seconds.total, *shares)
    return table


def _has(**parts: str) -> Callable[[Comparison], bool]:
    return lambda row: all(v in getattr(row, k) for k, v in parts.items())


def _is_cut(row: Comparison) -> bool:
    """Whether a row is of a step that was split in two ways."""
    return row.subject.startswith("cut of")


def _sharded(row: Comparison) -> bool:
    """Whether a row is of replicas alone, by ZeRO-3."""
    return "ZeRO-3" in row.configuration


GROUPS: dict[str, Callable[[Comparison], bool]] = {
    "22B to 1T on A100s": _has(subject="planned step", hardware="A100"),
    "ZeRO-3 on A100s": lambda row: (
        _sharded(row) and "A100" in row.hardware and not _is_cut(row)
    ),
    "ZeRO-3 on H100s": _has(configuration="ZeRO-3", hardware="H100"),
    "Llama 3 405B on H100s": _has(subject="405B"),
    "ResNet-50": _has(subject="ResNet-50"),
    "530B: added by 8 replicas": _has(subject="gradients"),
    "2021, a grid": lambda row: _is_cut(row) and not _sharded(row),
    "2021, ZeRO-3 alone": lambda row: _is_cut(row) and _sharded(row),
}


def misses_table(
    rows: Iterable[Comparison], *names: str, kinds: Sequence[str] = ("unseen",)
) -> Table:
    """Return how far off seconds were, for some of ``GROUPS``, or all.

    A rate that is too high is a time that is too short. The mean factor is
    that by which times were too long or too short. The last column counts the
    rows that are off by more than ``FAR``. Rows that were left out of a fit
    are unseen.
    """
    found = [_as_seconds(row) for row in rows]
    factors = f"mean factor:.2f | largest:> | beyond {FAR}"
    table = Table(f"seconds of | rows | {factors}")
    for name in names or GROUPS:
        for kind in kinds:
            own = [r for r in found if GROUPS[name](r) and r.kind == kind]
            if own:
                table.add(_named(name, own[0]), len(own), *_misses(own))
    return table


def _named(name: str, row: Comparison) -> str:
    """Return the name of a group, and how a fit has to do with its rows."""
    if row.configuration.endswith("left out of the fit"):
        return f"{name}, left out"
    return name if row.kind == "unseen" else f"{name}, fitted"


def _misses(rows: Sequence[Comparison]) -> tuple[float, str, int]:
    far = sum(row.times_off > FAR for row in rows)
    return mean_factor(rows), show_factor(worst(rows).factor), far


def cuts_table(rows: Iterable[Comparison]) -> Table:
    """Return what a step takes by ZeRO-3 alone, over what it takes by a grid.

    Each step that was measured both ways has a line.
    """
    ratios = "measured:.2f | planned:.2f"
    table = Table(f"network | GPUs | ZeRO-3, s:.0f | grid, s:.0f | {ratios}")
    for (subject, hardware), pair in groupby(
        filter(_is_cut, rows), lambda row: (row.subject, row.hardware)
    ):
        both = sorted(pair, key=_sharded)
        if len(both) == 2:
            grid, alone = both
            seconds = alone.measured, grid.measured
            measured = alone.measured / grid.measured
            planned = alone.predicted / grid.predicted
            names = subject.split(", ")[1], hardware.split()[0]
            table.add(*names, *seconds, measured, planned)
    return table


def _as_seconds(row: Comparison) -> Comparison:
    """Return a row of a rate as one of the seconds of one unit."""
    values = row.seconds
    assert values is not None
    names = row.subject, row.hardware, row.configuration, "s"
    return Comparison(*names, *values, row.kind, row.work)
