"""A picture of batch norm on a batch that comes in two shards."""

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dpkit.lab.common.plots import COLOURS, Picture
from dpkit.theory.timeline.drawing import INK

ROWS = 8
# Way -> where the rows are cut that statistics see, to normalize in training
# and to update the running statistics.
WAYS = {
    "per device": ((0, 4, 8), (0, 4)),
    "synchronized": ((0, 8), (0, 8)),
    "deferred": ((0, 4, 8), (0, 8)),
}


def draw_statistics() -> Picture:
    """Draw which rows of a batch each way of batch norm sees together."""

    def draw(ax: Axes) -> None:
        for i, (way, uses) in enumerate(WAYS.items()):
            ax.text(3.2 * i + 0.6, 2.4, way, ha="center", weight="bold")
            for x, use, cuts in zip((0, 1.2), ("normalize", "update"), uses):
                _draw_rows(ax, 3.2 * i + x, use, cuts)
        for half, y in (("first\nshard", -1.5), ("second\nshard", -5.5)):
            ax.text(-0.7, y, half, ha="right", va="center")
        ax.set(xlim=(-1.6, 8.1), ylim=(-ROWS + 0.2, 3.4))
        ax.axis("off")

    title = f"the rows that statistics of batch norm see: {', '.join(WAYS)}"
    return Picture(draw, title, (5.4, 3.0))


def _draw_rows(ax: Axes, x: float, use: str, cuts: tuple[int, ...]) -> None:
    """Draw a column of rows, and a frame around those between two cuts."""
    ax.text(x, 1.1, use, ha="center", fontsize=10)
    for row in range(ROWS):
        shown = {"color": COLOURS[2 * row // ROWS], "ms": 7}
        ax.plot(x, -row, "s", alpha=1 if row < cuts[-1] else 0.2, **shown)
    for top, bottom in pairwise(cuts):
        corner, height = (x - 0.33, 0.58 - bottom), bottom - top - 0.16
        ax.add_patch(Rectangle(corner, 0.66, height, fill=False, ec=INK))
