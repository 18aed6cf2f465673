"""Pictures of many runs by one recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from dpkit.lab.common.plots import COLOURS, Picture
from dpkit.theory.timeline.drawing import INK


def accuracies_of(
    record: Mapping[str, Any], way: str, key: str = "accuracies"
) -> list[list[float]]:
    """Return the accuracies of each run of a way, epoch by epoch.

    Args:
        record: What ``book/_data/resnet18_recipe.json`` holds.
        way: The name of the way.
        key: "accuracies", or "accuracies_of_batches".

    Example:
        >>> runs = [{"way": "a", "accuracies": [0.5, 0.6]}]
        >>> accuracies_of({"runs": runs}, "a")
        [[0.5, 0.6]]
    """
    return [run[key] for run in record["runs"] if run["way"] == way]


def plot_recipe(
    record: Mapping[str, Any],
    ways: Sequence[str],
    levels: Mapping[str, float],
) -> Picture:
    """Draw accuracy against epoch: each run, and the median of a way.

    Args:
        record: What ``book/_data/resnet18_recipe.json`` holds.
        ways: The names of those to draw.
        levels: Published accuracies by name: horizontal lines.

    Example:
        >>> runs = [{"way": "a", "accuracies": [0.5, 0.6]}]
        >>> plot_recipe({"runs": runs}, ["a"], {"published": 0.7})
        <picture: test accuracy by epoch: a; published 0.7>
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
