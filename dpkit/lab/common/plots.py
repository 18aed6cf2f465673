"""The figures of the chapters, drawn from what ran.

Each function returns a :class:`Picture`, which a notebook shows as SVG. The
ground is white, whatever the theme of the notebook. Pictures are narrow, so
that their words can be read where a telephone shrinks them.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpkit.lab.common.boxes import arrow, box
from dpkit.lab.common.ticks import decades, doublings
from dpkit.theory.timeline.drawing import INK, QUIET, Drawing
from dpkit.training import TrainingRecord

COLOURS = ("#2563eb", "#b45309", "#047857", "#7c3aed", "#be123c")
SIZE = (5.2, 3.1)  # inches
STYLE: dict[str, Any] = {
    "svg.hashsalt": "dpkit",  # the same figure gives the same bytes
    "svg.fonttype": "path",
    "figure.figsize": SIZE,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "grid.color": "#e1e5ea",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "legend.handlelength": 1.8,
    "legend.labelspacing": 0.3,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Picture(Drawing):
    """A figure of ``matplotlib`` as SVG, which notebooks display.

    Args:
        draw: Draws on the axes it is given.
        title: What the picture shows, for those who see text alone.
        size: Width and height in inches.
    """

    def __init__(
        self,
        draw: Callable[[Axes], None],
        title: str,
        size: tuple[float, float] = SIZE,
    ) -> None:
        with mpl.rc_context(STYLE):  # type: ignore[arg-type]
            figure = Figure(figsize=size)
            axes = figure.add_subplot()
            draw(axes)
            # The label of the vertical axis stands level, above the axis.
            axes.set_title(axes.get_ylabel(), loc="left")
            axes.yaxis.label.set_visible(False)
            text = io.StringIO()
            figure.savefig(
                text, format="svg", metadata={"Date": None, "Creator": None}
            )
        super().__init__(text.getvalue(), title)

    def __repr__(self) -> str:
        return f"<picture: {self.title}>"


def plot_training(records: Mapping[str, TrainingRecord]) -> Picture:
    """Draw test accuracy against epoch, a line for each run, by its name.

    Example:
        >>> from dpkit.lab.common.plots import plot_training
        >>> run = dpkit.TrainingRecord([], accuracies=[0.5, 0.7, 0.8])
        >>> plot_training({"1 device": run})
        <picture: test accuracy by epoch of 1 device>
    """

    def draw(ax: Axes) -> None:
        # Equal runs lie on one line: later ones are thinner, so all show.
        # The lines of 3 runs are 6.6, 4.2 and 1.8 wide.
        widths = [1.8 + 2.4 * i for i in reversed(range(len(records)))]
        for (name, record), width in zip(records.items(), widths):
            epochs = range(1, len(record.accuracies) + 1)
            style: dict[str, Any] = {"marker": "o", "linewidth": width}
            ax.plot(epochs, record.accuracies, label=name, **style)
            ax.set_xticks(epochs)
        ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
        ax.legend(loc="lower right")

    return Picture(draw, f"test accuracy by epoch of {', '.join(records)}")


def plot_headline(
    headline: Mapping[str, Any], published: Mapping[str, Any]
) -> Picture:
    """Draw the recorded runs on the full set beside published accuracies.

    Args:
        headline: What ``book/_data/headline.json`` holds.
        published: What ``book/_data/published.json`` holds.
    """

    def draw(ax: Axes) -> None:
        # Pairs of runs lie close together: the wider line goes below.
        for k, colour, width in ((1, "#93b4f5", 4.0), (2, COLOURS[1], 1.2)):
            runs = [r for r in headline["runs"] if r["num_devices"] == k]
            for run in runs:
                epochs = range(1, len(run["accuracies"]) + 1)
                line = ax.plot(epochs, run["accuracies"], color=colour)
                line[0].set_linewidth(width)
            line[0].set_label(f"{_devices(k)}, {len(runs)} seeds")
        for k, accuracy in published["accuracies"].items():
            label = f"published, {_devices(int(k))}: {accuracy}"
            style = ":" if k == "1" else "--"
            ax.axhline(accuracy, color=INK, linestyle=style, label=label)
        ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
        ax.set_xticks(epochs)
        ax.legend(loc="lower right")

    return Picture(draw, "test accuracy by epoch on the full set")


def _devices(count: int) -> str:
    return f"{count} device{'s' if count > 1 else ''}"


def plot_bars(values: Mapping[str, float], unit: str) -> Picture:
    """Draw a horizontal bar for each value, with the number beside it.

    Args:
        values: The lengths by the name of each bar.
        unit: What the lengths count.

    Example:
        >>> from dpkit.lab.common.plots import plot_bars
        >>> plot_bars({"a": 1.0, "b": 2.5}, "seconds")
        <picture: seconds: a 1, b 2.5>
    """

    def draw(ax: Axes) -> None:
        bars = ax.barh(list(values), list(values.values()), height=0.6)
        ax.bar_label(bars, fmt="%.3g", padding=4)
        ax.margins(x=0.15)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set_xlabel(unit)

    words = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    size = (SIZE[0], 0.9 + 0.45 * len(values))
    return Picture(draw, f"{unit}: {words}", size)


def plot_lines(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    yscale: str = "log",
) -> Picture:
    """Draw lines over a logarithmic axis; the last one as dots.

    Args:
        lines: The x and the y values of each line by its name; those that
            were predicted first, what was found last.
        xlabel: What x is, with its unit.
        ylabel: What y is, with its unit.
        yscale: "log" or "linear".

    Example:
        >>> from dpkit.lab.common.plots import plot_lines
        >>> plot_lines({"n": ([1, 10], [2, 20])}, "n", "seconds")
        <picture: seconds by n: n>
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


def draw_step(num_devices: int = 2) -> Picture:
    """Draw one data-parallel step: split, gradients, allreduce, update.

    Example:
        >>> from dpkit.lab.common.plots import draw_step
        >>> draw_step(3)
        <picture: a data-parallel step on 3 devices>
    """
    middle = (num_devices - 1) / 2

    def draw(ax: Axes) -> None:
        box(ax, 0, middle, "batch", QUIET)
        box(ax, 4.6, middle, "allreduce:\nsum", QUIET)
        for rank in range(num_devices):
            colour, y = COLOURS[rank % len(COLOURS)], num_devices - 1 - rank
            box(ax, 2.3, y, f"shard {rank},\ngradient {rank}", colour)
            box(ax, 6.9, y, f"update {rank}", colour)
            arrow(ax, (0, middle), (2.3, y))
            arrow(ax, (2.3, y), (4.6, middle))
            arrow(ax, (4.6, middle), (6.9, y))
        ax.set(xlim=(-0.9, 7.8), ylim=(-0.5, num_devices - 0.5))
        ax.axis("off")

    size = (5.4, 0.2 + 0.8 * num_devices)
    title = f"a data-parallel step on {num_devices} devices"
    return Picture(draw, title, size)
