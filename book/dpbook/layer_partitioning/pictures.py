"""Pictures of split layers: columns then rows, towers, and what it gains."""

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes

from dpbook.common.boxes import arrow, box, down
from dpbook.common.plots import COLOURS, Picture, doublings
from dpkit.theory.timeline.drawing import INK, QUIET

TOWER = 3.0  # from one tower to the other, in units of the drawing


def draw_mlp(num_devices: int = 2) -> Picture:
    """Draw two linear layers split over devices, by columns, then by rows."""
    middle = (num_devices - 1) / 2

    def draw(ax: Axes) -> None:
        box(ax, 7.2, middle, "allreduce:\nsum", QUIET)
        for rank in range(num_devices):
            colour = COLOURS[rank % len(COLOURS)]
            y = num_devices - 1 - rank
            box(ax, 0.45, y, "x", colour, width=0.7)
            box(ax, 2.4, y, f"columns {rank}\nof A", colour)
            box(ax, 4.8, y, f"rows {rank}\nof B", colour)
            box(ax, 9.15, y, "y", colour, width=0.7)
            arrow(ax, (0, y), (2.4, y))
            arrow(ax, (2.4, y), (4.8, y))
            arrow(ax, (4.8, y), (7.2, middle))
            arrow(ax, (7.2, middle), (9.6, y))
        ax.text(3.6, num_devices - 0.6, "activation", ha="center")
        ax.set(xlim=(0, 9.6), ylim=(-0.5, num_devices - 0.3))
        ax.axis("off")

    size = (5.5, 0.2 + 0.8 * num_devices)
    title = f"two layers split over {num_devices} devices"
    return Picture(draw, title, size)


def draw_towers(layers: Sequence[str], talk: Collection[str]) -> Picture:
    """Draw a network of two towers, with a crossing where they talk."""

    def draw(ax: Axes) -> None:
        for i, name in enumerate(layers):
            for rank in (0, 1):
                box(ax, TOWER * rank, -i, name, COLOURS[rank])
                for other in (0, 1) if name in talk else (rank,):
                    if i:
                        start = (TOWER * other, 1 - i)
                        down(ax, start, (TOWER * rank, -i))
        ax.set(xlim=(-0.9, TOWER + 0.9), ylim=(0.5 - len(layers), 0.5))
        ax.axis("off")

    title = f"two towers that talk in {', '.join(talk)}"
    return Picture(draw, title, (3.4, 0.6 * len(layers)))


def plot_gains(
    gains: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    predicted: Mapping[str, float],
    xlabel: str,
    ylabel: str,
) -> Picture:
    """Draw what splitting gains over a size, and where it should begin to.

    Args:
        gains: Name -> the sizes, and what splitting gains at each: the time of
            one device by that of several.
        predicted: Name -> the size from which it should be a gain.
        xlabel: What the axis shows, with the unit.
        ylabel: What the axis shows, with the unit.
    """

    def draw(ax: Axes) -> None:
        ax.axhline(1, color=INK, linewidth=1)
        for (name, (x, y)), colour in zip(gains.items(), COLOURS):
            ax.plot(x, y, "o-", color=colour, markersize=4, label=name)
            ax.axvline(predicted[name], color=colour, ls=":", lw=1.5)
        ax.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
        doublings(ax.xaxis)
        ax.set_ylim(bottom=0)
        ax.legend(loc="lower right")

    return Picture(draw, f"{ylabel} by {xlabel}: {', '.join(gains)}")
