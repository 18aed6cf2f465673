"""Pictures of results that change with the number of devices."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture

LOSSES = ((0, 1, 2), (3, 4), (5, 6))  # of the rows of three devices


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


def draw_sums() -> Panels:
    """Draw how devices take one mean of losses, by their sums and counts."""
    total = sum(map(sum, LOSSES))
    count = sum(map(len, LOSSES))
    lanes = []
    for rank, losses in enumerate(LOSSES):
        has = "losses\n" + ", ".join(map(str, losses))
        sends = f"sum {sum(losses)},\ncount {len(losses)}"
        mean = f"{total} / {count}\n= {total / count:g}" if rank == 0 else ""
        lanes.append(device(rank, has, sends, mean))
    drawn = draw_lanes(
        "One mean of seven losses",
        lanes,
        [Arrow((rank, 1), (0, 2)) for rank in (1, 2)],
        description="Each device has the sum and the count of its losses. "
        "Devices 1 and 2 send theirs to device 0, which divides once: "
        f"{total} / {count}.",
    )
    return Panels([drawn], in_a_row=1, width=24)
