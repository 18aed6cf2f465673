"""What book/_data/mesh.json says of the layouts, in tables and a picture.

The record is what ``scripts/recorders/mesh.py`` wrote to that file.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes

from dpbook.common.plots import COLOURS, Picture
from dpbook.common.rounding import below
from dpkit.theory.tables import Table, table
from dpkit.theory.timeline.drawing import QUIET

Row = Mapping[str, Any]
Record = Mapping[str, Any]
#: The unit of a picture, and how much of it a second or a byte is.
UNITS = {"seconds": ("ms", 1e3), "bytes": ("GB", 1e-9)}


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
                "difference": difference_of(row),
            }
            for row in rows
        ]
    )


def difference_of(row: Row) -> str:
    """Return a bound of the difference to one device, in words."""
    if row["difference"] is None:
        return "not compared"
    return below(row["difference"])


def against_table(rows: Iterable[Row]) -> Table:
    """Return a line for each layout that the planner has a forecast of."""
    lines = []
    for row in rows:
        planned = row["forecast"]
        if planned is None:
            continue
        slower = row["seconds"] / planned["seconds"]
        fuller = row["peak_bytes"] / planned["num_bytes"]
        lines.append(
            {
                "layout": row["name"],
                "planned, ms": f"{1e3 * planned['seconds']:.0f}",
                "engines, ms": f"{1e3 * row['seconds']:.0f}",
                "as long": f"{slower:.2f}",
                "planned, GB": f"{planned['num_bytes'] / 1e9:.1f}",
                "engines, GB": f"{row['peak_bytes'] / 1e9:.1f}",
                "as full": f"{fuller:.2f}",
            }
        )
    return table(lines)


def ordered_alike(rows: Iterable[Row], apart: float) -> tuple[int, int]:
    """Return how many pairs of layouts the planner orders as engines do.

    Args:
        rows: Layouts of the record.
        apart: By what share the engines' times differ at least.

    Returns:
        The pairs that are ordered alike, and all pairs so far apart.
    """
    known = [row for row in rows if row["forecast"] is not None]
    known.sort(key=lambda row: row["seconds"])
    pairs = [
        (fast, slow)
        for i, fast in enumerate(known)
        for slow in known[i + 1 :]
        if slow["seconds"] > (1 + apart) * fast["seconds"]
    ]
    alike = sum(
        fast["forecast"]["seconds"] < slow["forecast"]["seconds"]
        for fast, slow in pairs
    )
    return alike, len(pairs)


def plot_forecasts(rows: Iterable[Row], what: str) -> Picture:
    """Draw a dot for each layout: the planner's value and the engines'.

    Args:
        rows: Layouts of the record.
        what: "seconds" or "bytes".
    """
    unit, scale = UNITS[what]
    planned, measured = ("num_bytes", "peak_bytes"), ("seconds", "seconds")
    of_planner, of_engines = planned if what == "bytes" else measured
    known = [row for row in rows if row["forecast"] is not None]

    def draw(ax: Axes) -> None:
        xs = [scale * row["forecast"][of_planner] for row in known]
        ys = [scale * row[of_engines] for row in known]
        ends = [0.0, 1.05 * max(xs)]
        ax.plot(ends, ends, "--", color=QUIET, label="equal")
        ax.plot(xs, ys, "o", color=COLOURS[0], markersize=5, label="a layout")
        ax.set(xlabel=f"planner, {unit}", ylabel=f"engines, {unit}")
        ax.set(xlim=0, ylim=0)
        ax.legend()

    return Picture(draw, f"{what} of a step, by the planner and by engines")
