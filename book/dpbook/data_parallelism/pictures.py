"""Pictures of data parallelism: a step, and how training went."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from dpbook.common.boxes import arrow, box
from dpbook.common.plots import COLOURS, SIZE, Picture
from dpkit import TrainingRecord
from dpkit.sim.timeline.drawing import INK, QUIET


def draw_step(num_devices: int = 2) -> Picture:
    """Draw one data-parallel step: split, gradients, allreduce, update."""
    middle = (num_devices - 1) / 2

    def draw(ax: Axes) -> None:
        box(ax, 0, middle, "batch", colour=QUIET)
        box(ax, 4.6, middle, "allreduce:\nsum", colour=QUIET)
        for rank in range(num_devices):
            colour = COLOURS[rank % len(COLOURS)]
            y = num_devices - 1 - rank
            box(ax, 2.3, y, f"shard {rank},\ngradient {rank}", colour=colour)
            box(ax, 6.9, y, f"update {rank}", colour=colour)
            arrow(ax, (0, middle), (2.3, y))
            arrow(ax, (2.3, y), (4.6, middle))
            arrow(ax, (4.6, middle), (6.9, y))
        ax.set(xlim=(-0.9, 7.8), ylim=(-0.5, num_devices - 0.5))
        ax.axis("off")

    size = (5.4, 0.2 + 0.8 * num_devices)
    title = f"a data-parallel step on {num_devices} devices"
    return Picture(draw, title, size)


def plot_training(records: Mapping[str, TrainingRecord]) -> Picture:
    """Draw test accuracy against epoch, a line for each run, by its name."""

    def draw(ax: Axes) -> None:
        # Equal runs lie on one line: later ones are thinner, so all show.
        # The lines of 3 runs are 6.6, 4.2 and 1.8 wide.
        widths = [1.8 + 2.4 * i for i in reversed(range(len(records)))]
        for (name, record), width in zip(records.items(), widths):
            epochs = range(1, len(record.accuracies) + 1)
            ax.plot(epochs, record.accuracies, "o-", label=name, lw=width)
            ax.set_xticks(epochs)
        ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
        ax.legend(loc="lower right")

    return Picture(draw, f"test accuracy by epoch of {', '.join(records)}")


def plot_headline(
    headline: Mapping[str, Any], published: Mapping[str, Any]
) -> Picture:
    """Draw the recorded runs on the full set, and published accuracies.

    The arguments are what the files of their names in ``book/_data`` hold.
    """
    names = {1: "1 device", 2: "2 devices"}

    def draw(ax: Axes) -> None:
        # Pairs of runs lie close together: the wider line goes below.
        for k, colour, width in ((1, "#93b4f5", 4.0), (2, COLOURS[1], 1.2)):
            runs = [r for r in headline["runs"] if r["num_devices"] == k]
            for run in runs:
                epochs = range(1, len(run["accuracies"]) + 1)
                (line,) = ax.plot(epochs, run["accuracies"], color=colour)
                line.set_linewidth(width)
            line.set_label(f"{names[k]}, {len(runs)} seeds")
        for k, accuracy in published["accuracies"].items():
            label = f"published, {names[int(k)]}: {accuracy}"
            style = ":" if k == "1" else "--"
            ax.axhline(accuracy, color=INK, linestyle=style, label=label)
        ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
        ax.set_xticks(epochs)
        ax.legend(loc="lower right")

    return Picture(draw, "test accuracy by epoch on the full set")


def plot_bars(values: Mapping[str, float], unit: str) -> Picture:
    """Draw a horizontal bar for each value, with the number next to it."""

    def draw(ax: Axes) -> None:
        bars = ax.barh(list(values), list(values.values()), height=0.6)
        ax.bar_label(bars, fmt="%.3g", padding=4)
        ax.margins(x=0.15)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set_xlabel(unit)

    listed = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    size = (SIZE[0], 0.9 + 0.45 * len(values))
    return Picture(draw, f"{unit}: {listed}", size)
