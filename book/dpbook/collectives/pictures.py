"""Pictures of what collectives cost: ports, and who wins where."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from dpbook.common.plots import COLOURS, Picture
from dpkit.sim.timeline.drawing import INK
from dpkit.units import show_bytes


def plot_ports(sent: Mapping[str, Sequence[float]], bound: float) -> Picture:
    """Draw what the port of each rank sends, a group of bars for each rank.

    Args:
        sent: Algorithm -> the bytes that each rank sends.
        bound: The bytes that the average port has to send.
    """

    def draw(ax: Axes) -> None:
        width = 0.8 / len(sent)
        for i, (name, values) in enumerate(sent.items()):
            left = (i - (len(sent) - 1) / 2) * width
            places = [rank + left for rank in range(len(values))]
            ax.bar(places, values, width, color=COLOURS[i], label=name)
        label = "lower bound of the average"
        ax.axhline(bound, color=INK, linestyle="--", label=label)
        ax.set_xticks(range(len(next(iter(sent.values())))))
        ax.yaxis.set_major_formatter(lambda value, _: show_bytes(int(value)))
        ax.grid(visible=False, axis="x")
        ax.set(xlabel="rank", ylabel="sent")
        ax.legend(loc="upper right")

    return Picture(draw, f"bytes that each rank sends: {', '.join(sent)}")


def plot_winners(
    world_sizes: Sequence[int],
    sizes: Sequence[float],
    winners: Sequence[Sequence[str]],
) -> Picture:
    """Draw a map: which algorithm is fastest for how many ranks and bytes.

    Args:
        world_sizes: The numbers of ranks, in order.
        sizes: Bytes on each rank, evenly spaced on a logarithmic axis.
        winners: What ``dpkit.plans.choice.winners`` returns: a
            row for each number of ranks.
    """
    names = sorted({name for row in winners for name in row})
    # tree tree ring: tree is fastest for the first two sizes, then ring.
    stretches = [
        Stretch(p, name, [size for size, _ in same])
        for p, row in zip(world_sizes, winners)
        for name, same in groupby(zip(sizes, row), key=itemgetter(1))
    ]
    step = (sizes[1] / sizes[0]) ** 0.5

    def draw(ax: Axes) -> None:
        for p, name, some in stretches:
            ends = some[0] / step, some[-1] * step
            colour = mpl.colors.to_rgba(COLOURS[names.index(name)], 0.3)
            ax.fill_between(ends, p - 0.5, p + 0.5, color=colour, lw=0)
        for name in names:
            p, _, some = _place([x for x in stretches if x.name == name])
            x = (some[0] * some[-1]) ** 0.5
            text = ax.text(x, p, _words(name), fontsize=11.6)
            text.set(ha="center", va="center")
        _frame(ax, world_sizes, (sizes[0] / step, sizes[-1] * step))

    title = f"the fastest by ranks and size: {', '.join(map(_words, names))}"
    return Picture(draw, title, (5.2, 4.2))


class Stretch(NamedTuple):
    """Sizes that follow each other with the same winner, in a row."""

    world_size: int
    name: str
    sizes: Sequence[float]


def _place(stretches: Sequence[Stretch]) -> Stretch:
    """Return where a name is written: in a long stretch, halfway."""
    enough = 0.7 * max(len(x.sizes) for x in stretches)
    long = [x for x in stretches if len(x.sizes) >= enough]
    return long[len(long) // 2]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _frame(
    ax: Axes, world_sizes: Sequence[int], width: tuple[float, float]
) -> None:
    ax.set(xscale="log", xlabel="size", ylabel="ranks", xlim=width)
    # Sizes at kB, MB and GB.
    ax.xaxis.set_major_locator(LogLocator(1000))
    ax.xaxis.set_major_formatter(lambda value, _: show_bytes(int(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(world_sizes[0] - 0.5, world_sizes[-1] + 0.5)
    ax.set_yticks([p for p in world_sizes if p % 2 == 0 or p < 4])
    ax.grid(visible=False)
