"""The figures of the chapters, drawn from what ran.

Each function returns a :class:`Picture`, which a notebook shows as SVG. The
ground is white, whatever the theme of the notebook. Pictures are narrow, so
that their words can be read where a telephone shrinks them.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from dpkit.sim.timeline.drawing import INK, Drawing

COLOURS = ("#2563eb", "#b45309", "#047857", "#7c3aed", "#be123c")
SIZE = (5.2, 3.1)  # inches
STYLE = Path(__file__).parent / "data" / "pictures.mplstyle"


class Picture(Drawing):
    """A figure of ``matplotlib`` as SVG, which notebooks display.

    ``draw`` draws on the axes that it is given, ``title`` says in words what
    the picture shows, and ``size`` is width and height in inches.
    """

    def __init__(
        self,
        draw: Callable[[Axes], None],
        title: str,
        size: tuple[float, float] = SIZE,
    ) -> None:
        with mpl.rc_context(fname=STYLE):
            figure = Figure(figsize=size)
            axes = figure.add_subplot()
            draw(axes)
            # The label of the vertical axis stands level, above the axis.
            axes.set_title(axes.get_ylabel(), loc="left")
            axes.yaxis.label.set_visible(False)
            text = io.StringIO()
            about = {"Date": None, "Creator": None}
            figure.savefig(text, format="svg", metadata=about)
        super().__init__(text.getvalue(), title)

    def __repr__(self) -> str:
        return f"<picture: {self.title}>"


def plot_lines(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    yscale: str = "log",
) -> Picture:
    """Draw lines over a logarithmic axis; the last one as dots.

    Args:
        lines: Name -> the values of x and those of y. What was predicted comes
            first, what was measured last.
        xlabel: What the axis shows, with the unit.
        ylabel: What the axis shows, with the unit.
        yscale: "log" or "linear".
    """

    def draw(ax: Axes) -> None:
        *predicted, found = lines.items()
        for (name, (x, y)), style in zip(predicted, ("-", "--", ":")):
            ax.plot(x, y, style, label=name)
        ax.plot(*found[1], "o", color=INK, markersize=5, label=found[0])
        ax.set(xscale="log", yscale=yscale, xlabel=xlabel, ylabel=ylabel)
        doublings(ax.xaxis)
        if yscale == "log":
            decades(ax.yaxis)
        ax.legend(loc="best")

    return Picture(draw, f"{ylabel} by {xlabel}: {', '.join(lines)}")


# Logarithmic axes in plain numbers. The limits of the axis are set before, or
# what it shows is drawn.


def doublings(axis: Axis) -> None:
    """Put ticks at powers of two, and at every n-th if they are too many."""
    low, high = sorted(axis.get_view_interval())
    first = math.ceil(math.log2(low))
    last = math.floor(math.log2(high))
    powers: Sequence[int] = range(first, last + 1)
    each = 1
    while not _fit(powers):
        each += 1
        powers = [p for p in range(first, last + 1) if p % each == 0]
    axis.set_major_locator(FixedLocator([2.0**p for p in powers]))
    _plain(axis)


def _fit(powers: Sequence[int]) -> bool:
    """Return whether labels at powers of two stand apart: 8 of 4 letters."""
    longest = max(len(_label(2.0**p)) for p in powers)
    return len(powers) * longest <= 32


def decades(axis: Axis) -> None:
    """Put ticks at 1, 2 and 5, or at powers of ten if the axis is long."""
    low, high = sorted(axis.get_view_interval())
    subs = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
    axis.set_major_locator(LogLocator(10, subs))
    _plain(axis)


def _label(value: float) -> str:
    return f"{value:.0f}" if value >= 1 else f"{value:.3g}"


def _plain(axis: Axis) -> None:
    axis.set_major_formatter(lambda value, _: _label(value))
    axis.set_minor_locator(NullLocator())
