"""Boxes, given by their middles, and arrows, by those of their boxes."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from dpkit.sim.timeline.drawing import QUIET


def box(
    ax: Axes, x: float, y: float, text: str, *, colour: str, width: float = 1.6
) -> None:
    """Draw a rounded box with text in it.

    Args:
        ax: Where it is drawn.
        x: Where the middle of the box is, in the units of the axes.
        y: How high the middle is.
        text: May have several lines.
        colour: That of the edge; the ground is the same, and pale.
        width: In the units of the axes. The height is 0.64.
    """
    corner = (x - width / 2, y - 0.32)
    shape = "round,pad=0.02,rounding_size=0.1"
    patch = FancyBboxPatch(corner, width, 0.64, shape, edgecolor=colour)
    patch.set_facecolor(mpl.colors.to_rgba(colour, 0.12))
    ax.add_patch(patch)
    ax.text(x, y, text, ha="center", va="center", fontsize=12)


def arrow(
    ax: Axes, start: Sequence[float], end: Sequence[float], back: bool = False
) -> None:
    """Draw an arrow from the side of a box to the side of another.

    Args:
        ax: Where it is drawn.
        start: The middle of the first box, as (x, y) in the units of the axes.
            A box is 1.6 wide.
        end: The middle of the second box.
        back: Whether the second box lies to the left of the first.
    """
    out = -0.84 if back else 0.84
    _arrow(ax, (start[0] + out, start[1]), (end[0] - out, end[1]))


def down(ax: Axes, start: Sequence[float], end: Sequence[float]) -> None:
    """Draw an arrow from the bottom of a box to the top of one below."""
    _arrow(ax, (start[0], start[1] - 0.36), (end[0], end[1] + 0.36))


def _arrow(
    ax: Axes, tail: tuple[float, float], tip: tuple[float, float]
) -> None:
    line = {"arrowstyle": "->", "color": QUIET}
    ax.annotate("", tip, tail, arrowprops=line)
