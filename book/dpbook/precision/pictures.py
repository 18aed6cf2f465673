"""Figures of the chapter on rounding and randomness."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from dpbook.common.plots import Picture


def plot_distances(distances: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far apart pairs of runs are after each step."""

    def draw(ax: Axes) -> None:
        for name, found in distances.items():
            ax.plot(range(1, len(found) + 1), found, label=name)
        ax.set(xlabel="step", ylabel="largest difference")
        ax.set(yscale="log", xlim=0)
        ax.legend(loc="best")

    names = ", ".join(distances)
    return Picture(draw, f"distance of two runs by step: {names}")
