"""Pictures of results that change with the number of devices."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from dpkit.lab.common.plots import COLOURS, Picture


def plot_by_rows(accuracies: Mapping[int, Sequence[float]]) -> Picture:
    """Draw the test accuracy of seeds against the rows of a device."""

    def draw(ax: Axes) -> None:
        names = [str(rows) for rows in accuracies]
        means = [sum(found) / len(found) for found in accuracies.values()]
        ax.plot(names, means, color=COLOURS[0], label="mean over seeds")
        for name, found in zip(names, accuracies.values()):
            ax.plot([name] * len(found), found, "o", color=COLOURS[1])
        ax.plot([], [], "o", color=COLOURS[1], label="one seed")
        ax.set(xlabel="rows of a device", ylabel="test accuracy", ylim=(0, 1))
        ax.legend(loc="lower left")

    names = ", ".join(map(str, accuracies))
    return Picture(draw, f"test accuracy by rows of a device: {names}")


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
