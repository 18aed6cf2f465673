"""Tables of what layouts hold and take, and of how far off such plans were."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from dpbook.limits.comparisons import (
    Comparison,
    mean_factor,
    worst,
)
from dpbook.limits.trust import WITH_EXPERTS
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.search import LayoutCost
from dpkit.tables import Table, table
from dpkit.units import show_factor

GIB = 2**30
FAR = 1.15  # a factor that is named wherever the planner is used


def _cut(layout: Layout) -> dict[str, object]:
    """Return the first cells of a row; the cut does not break into lines."""
    return {
        "d × t × p": layout.words_of_cut.replace(" ", "\xa0"),
        "rows": layout.micro_batch,
        "v": layout.chunks,
        "recompute": layout.recompute,
        "ZeRO": layout.zero,
    }


def memory_table(case: Case, layouts: Iterable[Layout]) -> Table:
    """Return the GiB of the fullest device, and whether a layout fits."""
    rows = []
    for layout in layouts:
        held = case.memory(layout)
        sizes = {
            "weights": held.weights,
            "gradients": held.gradients,
            "state": held.state,
            "activations": held.activations,
            "GiB": held.total,
        }
        in_gib = {name: f"{size / GIB:.1f}" for name, size in sizes.items()}
        fits = "yes" if held.total <= case.room else "no"
        rows.append(_cut(layout) | in_gib | {"fits": fits})
    return table(rows)


def seconds_table(plans: Iterable[LayoutCost]) -> Table:
    """Return what a step takes, and the share of each part.

    Hops are counted with the bubble.
    """
    heads = ("products", "kernels", "in layers", "launches")
    rows = []
    for layout, held, seconds in plans:
        *inside, bubble, hops, gradients = seconds
        parts = dict(zip(heads, inside, strict=True))
        parts |= {"bubble": bubble + hops, "gradients": gradients}
        whole = {
            "GiB": f"{held.total / GIB:.1f}",
            "s": f"{seconds.total:.3g}",
        }
        shares = {
            name: f"{part / seconds.total:.0%}" for name, part in parts.items()
        }
        rows.append(_cut(layout) | whole | shares)
    return table(rows)


def _has(**parts: str) -> Callable[[Comparison], bool]:
    return lambda row: all(v in getattr(row, k) for k, v in parts.items())


def _is_cut(row: Comparison) -> bool:
    """Whether a row is of a step that was split in two ways."""
    return row.subject.startswith("cut of")


def _sharded(row: Comparison) -> bool:
    """Whether a row is of replicas alone, by ZeRO-3."""
    return "ZeRO-3" in row.configuration


def _of_experts(row: Comparison, narrow: bool, zero_3: bool) -> bool:
    """Whether a row is of a network with experts, in one of two ways."""
    return (
        row.work == WITH_EXPERTS
        and ("G8T8" in row.subject) == narrow
        and ("gathered" in row.configuration) == zero_3
    )


def _by_fsdp2(row: Comparison) -> bool:
    return row.subject.startswith("Llama")


GROUPS: dict[str, Callable[[Comparison], bool]] = {
    "22B to 1T on A100s": _has(subject="planned step", hardware="A100"),
    "ZeRO-3 on A100s": lambda row: (
        _sharded(row)
        and "A100" in row.hardware
        and not _is_cut(row)
        and not _by_fsdp2(row)
    ),
    "Llama by FSDP2 on A100s": _by_fsdp2,
    "ZeRO-3 on H100s": _has(configuration="ZeRO-3", hardware="H100"),
    "Llama 3 405B on H100s": _has(subject="405B"),
    "ResNet-50": _has(subject="ResNet-50"),
    "530B: added by 8 replicas": _has(subject="gradients"),
    "8x22B by ZeRO-3": lambda row: _of_experts(row, narrow=False, zero_3=True),
    "8x22B, other ways": lambda row: _of_experts(
        row, narrow=False, zero_3=False
    ),
    "narrow experts by ZeRO-3": lambda row: _of_experts(
        row, narrow=True, zero_3=True
    ),
    "narrow experts, other ways": lambda row: _of_experts(
        row, narrow=True, zero_3=False
    ),
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
    lines = []
    for name in names or GROUPS:
        for kind in kinds:
            own = [r for r in found if GROUPS[name](r) and r.kind == kind]
            if own:
                what = {"seconds of": _named(name, own[0]), "rows": len(own)}
                lines.append(what | _misses(own))
    return table(lines)


def _named(name: str, row: Comparison) -> str:
    """Return the name of a group, and how a fit has to do with its rows."""
    if row.configuration.endswith("left out of the fit"):
        return f"{name}, left out"
    return name if row.kind == "unseen" else f"{name}, fitted"


def _misses(rows: Sequence[Comparison]) -> dict[str, object]:
    return {
        "mean factor": f"{mean_factor(rows):.2f}",
        "largest": show_factor(worst(rows).factor),
        f"beyond {FAR}": sum(row.times_off > FAR for row in rows),
    }


def cuts_table(rows: Iterable[Comparison]) -> Table:
    """Return what a step takes by ZeRO-3 alone, over what it takes by a grid.

    Each step that was measured both ways has a line.
    """
    lines = []
    for (subject, hardware), pair in groupby(
        filter(_is_cut, rows), lambda row: (row.subject, row.hardware)
    ):
        both = sorted(pair, key=_sharded)
        if len(both) == 2:
            grid, alone = both
            planned = alone.predicted / grid.predicted
            lines.append(
                {
                    "network": subject.split(", ")[1],
                    "GPUs": hardware.split()[0],
                    "ZeRO-3, s": f"{alone.measured:.0f}",
                    "grid, s": f"{grid.measured:.0f}",
                    "measured": f"{alone.measured / grid.measured:.2f}",
                    "planned": f"{planned:.2f}",
                }
            )
    return table(lines)


def _as_seconds(row: Comparison) -> Comparison:
    """Return a row of a rate as one of the seconds of one unit."""
    values = row.seconds
    assert values is not None
    names = row.subject, row.hardware, row.configuration, "s"
    return Comparison(*names, *values, row.kind, row.work)
