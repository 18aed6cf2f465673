"""Pictures of how steps scale, where time goes, and runs of a recipe."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dpbook.common.plots import COLOURS, Picture
from dpkit.theory.clock.record import is_host
from dpkit.theory.timeline.drawing import INK, QUIET
from dpkit.theory.timeline.timeline import Timeline

PARTS = ("computing", "replicating", "returning", "images", "idle")

# Batch norm -> cuts between the rows that it sees: to normalize, to update.
CUTS = {
    "per device": ((0, 4, 8), (0, 4)),
    "synchronized": ((0, 8), (0, 8)),
    "deferred": ((0, 4, 8), (0, 8)),
}


def draw_statistics() -> Picture:
    """Draw which rows of a batch the statistics of batch norm see."""

    def draw(ax: Axes) -> None:
        for i, (name, uses) in enumerate(CUTS.items()):
            left = 3.6 * i
            ax.text(left + 0.9, 2.4, name, ha="center", weight="bold")
            for x, use, cuts in zip((0, 1.8), ("normalize", "update"), uses):
                _draw_rows(ax, left + x, use, cuts)
        for half, y in (("first\nhalf", -1.5), ("second\nhalf", -5.5)):
            ax.text(-0.7, y, half, ha="right", va="center")
        ax.set(xlim=(-2.2, 9.6), ylim=(-7.8, 3.4))
        ax.axis("off")

    title = f"rows that the statistics of batch norm see: {', '.join(CUTS)}"
    return Picture(draw, title, (5.4, 3.0))


def _draw_rows(ax: Axes, x: float, use: str, cuts: tuple[int, ...]) -> None:
    """Draw a column of rows, with a frame around those between two cuts."""
    ax.text(x, 1.1, use, ha="center")
    for row in range(8):
        colour = COLOURS[row // 4]
        alpha = 1 if row < cuts[-1] else 0.2
        ax.plot(x, -row, "s", color=colour, alpha=alpha, markersize=7)
    for top, bottom in pairwise(cuts):
        corner = (x - 0.33, 0.58 - bottom)
        height = bottom - top - 0.16
        ax.add_patch(Rectangle(corner, 0.66, height, fill=False, ec=INK))


def plot_speedups(
    lines: Mapping[str, Mapping[str, Mapping[int, float]]], ylabel: str
) -> Picture:
    """Draw speed-ups against the number of devices, beside the ideal.

    ``lines``: machine -> engine -> number of devices -> speed-up.
    """
    rows = [
        (machine, engine, line, colour, style)
        for (machine, engines), colour in zip(lines.items(), COLOURS)
        for (engine, line), style in zip(engines.items(), ("o-", "s--"))
    ]

    def draw(ax: Axes) -> None:
        counts = sorted({k for _, _, line, _, _ in rows for k in line})
        ax.plot(counts, counts, ":", color=QUIET, label="ideal")
        for machine, engine, line, colour, style in rows:
            label = f"{machine}: {engine}"
            ax.plot(*zip(*line.items()), style, color=colour, label=label)
        ax.set(xlabel="devices", ylabel=ylabel, xticks=counts, ylim=(0, None))
        ax.legend(loc="upper left")

    names = ", ".join(f"{machine} {engine}" for machine, engine, *_ in rows)
    return Picture(draw, f"{ylabel} by devices: {names}", (5.2, 3.8))


def shares(timeline: Timeline) -> dict[str, dict[str, float]]:
    """Return where the time of each device went in a step of the wrapper.

    Device -> part -> fraction of the makespan. Parameters are copied to a
    replica ("replicating"); outputs and gradients come back ("returning").
    """
    found: dict[str, dict[str, float]] = {}
    for span in timeline.spans:
        if not is_host(span.device):
            parts = found.setdefault(span.device, dict.fromkeys(PARTS, 0.0))
            seconds = (span.end - span.start) / timeline.makespan
            parts[_part(span.device, span.kind, span.name)] += seconds
    for parts in found.values():
        parts["idle"] = 1 - sum(parts.values())
    return dict(sorted(found.items()))


def _part(device: str, kind: str, name: str) -> str:
    """Return what a span of a device belongs to, by the way that it copies."""
    if kind != "copy":
        return "computing"
    if name == "copy from host":
        return "images"
    target = name.split()[-1] if name.startswith("copy to") else device
    return "returning" if target.endswith(":0") else "replicating"


def accuracies_of(
    record: Mapping[str, Any], way: str, key: str = "accuracies"
) -> list[list[float]]:
    """Return the accuracies of each run of a way, epoch by epoch."""
    return [run[key] for run in record["runs"] if run["way"] == way]


def plot_recipe(
    record: Mapping[str, Any], ways: Sequence[str], levels: Mapping[str, float]
) -> Picture:
    """Draw accuracy against epoch: each run, and the median of a way.

    The published accuracies, ``levels``, are horizontal lines.
    """

    def draw(ax: Axes) -> None:
        for way, colour in zip(ways, COLOURS):
            runs = accuracies_of(record, way)
            epochs = range(1, len(runs[0]) + 1)
            for run in runs:
                ax.plot(epochs, run, color=colour, linewidth=0.7, alpha=0.6)
            middle = [median(values) for values in zip(*runs)]
            label = f"{way}, median of {len(runs)}"
            ax.plot(epochs, middle, "o-", color=colour, label=label)
        for (name, level), style in zip(levels.items(), (":", "--")):
            label = f"{name}: {level}"
            ax.axhline(level, color=INK, linestyle=style, label=label)
        ax.set(xlabel="epoch", ylabel="test accuracy", xticks=epochs)
        ax.legend(loc="lower right")

    words = ", ".join(f"{name} {level}" for name, level in levels.items())
    title = f"test accuracy by epoch: {', '.join(ways)}; {words}"
    return Picture(draw, title, (5.2, 4.4))
