"""Pictures of results that change with the number of devices."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from dpbook.common.plots import COLOURS, Picture


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
