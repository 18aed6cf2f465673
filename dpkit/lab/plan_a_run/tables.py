"""Tables of what layouts hold and take, and of how far off such plans were."""

from collections.abc import Callable, Iterable

from dpkit.lab.limits.comparisons import Comparison, mean_miss, unseen, worst
from dpkit.theory.planner.case import Case
from dpkit.theory.planner.layouts import Layout
from dpkit.theory.planner.search import LayoutCost
from dpkit.theory.tables import Table

GIB = 2**30
FAR = 0.15  # a miss that is told wherever the planner is used
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
    parts = "products:.0% | kernels:.0% | in layers:.0% | bubble:.0%"
    table = Table(f"{CUT} | GiB:.1f | s:.3g | {parts} | gradients:.0%")
    for layout, held, seconds in plans:
        products, kernels, messages, bubble, hops, gradients = seconds
        parts_of = products, kernels, messages, bubble + hops, gradients
        shares = (part / seconds.total for part in parts_of)
        table.add(*_cut(layout), held.total / GIB, seconds.total, *shares)
    return table


def _has(**parts: str) -> Callable[[Comparison], bool]:
    return lambda row: all(v in getattr(row, k) for k, v in parts.items())


GROUPS = {
    "22B to 1T on A100s": _has(subject="planned step", hardware="A100"),
    "ZeRO-3 on A100s": _has(configuration="ZeRO-3", hardware="A100"),
    "ZeRO-3 on H100s": _has(configuration="ZeRO-3", hardware="H100"),
    "Llama 3 405B on H100s": _has(subject="405B"),
    "ResNet-50": _has(subject="ResNet-50"),
    "530B: added by 8 replicas": _has(subject="gradients"),
}


def misses_table(rows: Iterable[Comparison], *names: str) -> Table:
    """Return how far off seconds were, for some of ``GROUPS``, or all.

    Only unseen rows count. A rate that is too high is a time that is too
    short. The last column counts the rows that are off by more than ``FAR``.
    """
    found = [_as_seconds(row) for row in unseen(rows)]
    head = "seconds of | rows | mean miss:.0% | largest:+.0%"
    table = Table(f"{head} | beyond {FAR:.0%}")
    for name in names or GROUPS:
        own = [row for row in found if GROUPS[name](row)]
        far = sum(abs(row.error) > FAR for row in own)
        table.add(name, len(own), mean_miss(own), worst(own).error, far)
    return table


def _as_seconds(row: Comparison) -> Comparison:
    """Return a row of a rate as one of the seconds of one unit."""
    values = row.seconds
    assert values is not None
    names = row.subject, row.hardware, row.configuration, "s"
    return Comparison(*names, *values, row.kind, row.work)
