"""What book/_data/mesh.json says of the layouts, in tables and a picture.

The record is what ``scripts/recorders/mesh.py`` wrote to that file.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes

from dpbook.common.plots import COLOURS, Picture
from dpbook.common.rounding import below
from dpbook.mesh.forecasts import Forecast
from dpkit.sim.timeline.drawing import QUIET
from dpkit.tables import Table, table

Row = Mapping[str, Any]
Record = Mapping[str, Any]
Forecasts = Mapping[str, Forecast]
#: The unit of a picture, and how much of it a second or a byte is.
UNITS = {"seconds": ("ms", 1e3), "bytes": ("GB", 1e-9)}
#: The names of these in a row of the record, and in a forecast.
KEYS = {
    "seconds": ("seconds", "seconds"),
    "bytes": ("peak_bytes", "num_bytes"),
}


def rows_by_name(record: Record) -> dict[str, Row]:
    """Return the layouts of the record, by name."""
    return {row["name"]: row for row in record["layouts"]}


def gigabytes(row: Row, kind: str) -> str:
    """Return what all ranks send of a kind, in GB, or "" for next to nothing.

    Args:
        row: A layout of the record.
        kind: Such as "allgather", of all dimensions together.
    """
    num_bytes = sum(
        n for key, n in row["sent"].items() if key.split()[1] == kind
    )
    return f"{num_bytes / 1e9:.1f}" if num_bytes > 5e7 else ""


def layouts_table(rows: Iterable[Row]) -> Table:
    """Return a line for each layout: what it sends, keeps and takes."""
    kinds = {
        "allgather": "allgather, GB",
        "reduce_scatter": "reduce-scatter, GB",
        "allreduce": "allreduce, GB",
        "message": "messages, GB",
    }
    return table(
        [
            {"layout": row["name"]}
            | {head: gigabytes(row, kind) for kind, head in kinds.items()}
            | {
                "peak, GB": f"{row['peak_bytes'] / 1e9:.1f}",
                "step, ms": f"{1e3 * row['seconds']:.1f}",
                "difference": below(row["difference"]),
            }
            for row in rows
        ]
    )


def against_table(
    rows: Iterable[Row], fused: Forecasts, plain: Forecasts
) -> Table:
    """Return a line for each layout that the planner knows.

    Args:
        rows: Layouts of the record.
        fused: What the planner says of a program of fused kernels, by name.
        plain: What it says of plain modules.
    """
    lines = []
    for row in rows:
        name = row["name"]
        if name not in fused:
            continue
        of_fused, of_plain = fused[name], plain[name]
        lines.append(
            {
                "layout": name,
                "fused, ms": f"{1e3 * of_fused.seconds:.0f}",
                "plain, ms": f"{1e3 * of_plain.seconds:.0f}",
                "engines, ms": f"{1e3 * row['seconds']:.0f}",
                "fused, GB": f"{of_fused.num_bytes / 1e9:.1f}",
                "plain, GB": f"{of_plain.num_bytes / 1e9:.1f}",
                "engines, GB": f"{row['peak_bytes'] / 1e9:.1f}",
            }
        )
    return table(lines)


def ordered_alike(
    rows: Iterable[Row], planned: Forecasts, what: str, apart: float
) -> tuple[int, int]:
    """Return how many pairs of layouts the planner orders as engines do.

    Args:
        rows: Layouts of the record.
        planned: What the planner says, by name.
        what: "seconds" or "bytes".
        apart: By what share the engines' values differ at least.

    Returns:
        The pairs that are ordered alike, and all pairs so far apart.
    """
    known = sorted(_pairs(rows, planned, what))
    pairs = [
        (low, high)
        for i, low in enumerate(known)
        for high in known[i + 1 :]
        if high[0] > (1 + apart) * low[0]
    ]
    return sum(low[1] < high[1] for low, high in pairs), len(pairs)


def _pairs(
    rows: Iterable[Row], planned: Forecasts, what: str
) -> list[tuple[float, float]]:
    """Return what engines have and what the planner says, for each layout."""
    of_engines, of_planner = KEYS[what]
    return [
        (row[of_engines], getattr(planned[row["name"]], of_planner))
        for row in rows
        if row["name"] in planned
    ]


def plot_forecasts(
    rows: Iterable[Row], fused: Forecasts, plain: Forecasts, what: str
) -> Picture:
    """Draw two dots for each layout: the engines' value over the planner's.

    Args:
        rows: Layouts of the record.
        fused: What the planner says of a program of fused kernels, by name.
        plain: What it says of plain modules.
        what: "seconds" or "bytes".
    """
    unit, scale = UNITS[what]
    rows = list(rows)

    def draw(ax: Axes) -> None:
        most = 0.0
        for planned, marker, colour, label in (
            (fused, "o", COLOURS[0], "fused kernels"),
            (plain, "^", COLOURS[1], "plain modules"),
        ):
            pairs = _pairs(rows, planned, what)
            ys, xs = ([scale * x for x in part] for part in zip(*pairs))
            ax.plot(xs, ys, marker, color=colour, markersize=5, label=label)
            most = max(most, *xs)
        ends = [0.0, 1.05 * most]
        ax.plot(ends, ends, "--", color=QUIET, label="equal")
        ax.set(xlabel=f"planner, {unit}", ylabel=f"engines, {unit}")
        ax.set(xlim=0, ylim=0)
        ax.legend()

    return Picture(draw, f"{what} of a step, by the planner and by engines")
