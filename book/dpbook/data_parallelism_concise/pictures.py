"""Pictures of what batch norm sees, and of runs of a recipe."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpkit.sim.timeline.drawing import INK, Drawing

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

    listed = ", ".join(f"{name} {level}" for name, level in levels.items())
    title = f"test accuracy by epoch: {', '.join(ways)}; {listed}"
    return Picture(draw, title, (5.2, 4.4))


def draw_wrappers() -> Panels:
    """Draw a step of PyTorch's two wrappers on two devices."""
    return Panels([_ddp(), _data_parallel()], in_a_row=1, width=24)


def _ddp() -> Drawing:
    lanes = [
        device(
            rank, "replica", f"shard {rank}", f"loss {rank}", "gradient",
            "update", name="process",
        )
        for rank in (0, 1)
    ]  # fmt: skip
    return draw_lanes(
        "DistributedDataParallel",
        lanes,
        [Arrow((0, 3), (1, 3), "averaged", both=True)],
        description="Each process has a replica, a shard and a loss. The "
        "gradients are averaged, and each process updates its replica.",
        cut="a process for each device",
    )


def _data_parallel() -> Drawing:
    lanes = [
        device(0, "module", "shard 0", "outputs,\nloss", "gradient", "update"),
        device(1, "copy", "shard 1", "outputs", "gradient"),
    ]
    sent = [
        Arrow((0, 0), (1, 0), "copied"),
        Arrow((0, 2), (1, 2), both=True),
        Arrow((1, 3), (0, 3), "added"),
    ]
    return draw_lanes(
        "DataParallel",
        lanes,
        sent,
        description="The module is copied from device 0 to device 1 in each "
        "step. The outputs of device 1 go to device 0, which computes the "
        "loss, and their gradients come back. The gradients of the copy are "
        "added to those of device 0, which alone updates.",
        cut="one process for all devices",
    )
