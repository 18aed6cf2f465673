"""Pictures of what collectives cost: ports, times, and who wins where."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from dpkit.lab.common.plots import COLOURS, Picture
from dpkit.theory.timeline.drawing import INK
from dpkit.theory.units import show_bytes, show_seconds

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


def plot_ports(
    sent: Mapping[str, Sequence[float]], bound: float | None = None
) -> Picture:
    """Draw what the port of each rank sends, a group of bars for each rank.

    Args:
        sent: Algorithm -> bytes that each rank sends.
        bound: Bytes that the average port has to send; a line, if given.
    """

    def draw(ax: Axes) -> None:
        width = 0.8 / len(sent)
        for i, (name, values) in enumerate(sent.items()):
            left = (i - (len(sent) - 1) / 2) * width
            places = [rank + left for rank in range(len(values))]
            colour = COLOURS[i % len(COLOURS)]
            ax.bar(places, values, width, color=colour, label=name)
        if bound is not None:
            words = "lower bound of the average"
            ax.axhline(bound, color=INK, linestyle="--", label=words)
        ax.set_xticks(range(len(next(iter(sent.values())))))
        ax.yaxis.set_major_formatter(lambda value, _: show_bytes(int(value)))
        ax.grid(visible=False, axis="x")
        ax.set(xlabel="rank", ylabel="sent")
        ax.legend(loc="upper right")

    return Picture(draw, f"bytes that each rank sends: {', '.join(sent)}")


def plot_costs(
    sizes: Sequence[float],
    seconds: Mapping[str, Sequence[float]],
    bound: Sequence[float] | None = None,
    dots: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> Picture:
    """Draw time against size, a line for each algorithm.

    Args:
        sizes: Bytes on each rank.
        seconds: Name of the line -> seconds at each size.
        bound: Seconds that nothing beats, at each size; the ground below it
            is grey.
        dots: Name -> sizes and seconds that were found, as dots.
    """

    def draw(ax: Axes) -> None:
        for i, (name, values) in enumerate(seconds.items()):
            colour, style = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]
            ax.plot(
                sizes,
                values,
                color=colour,
                linestyle=style,
                label=_words(name),
            )
        if bound is not None:
            bottom = 0.5 * min(bound)
            ax.fill_between(
                sizes, bottom, bound, color="#e1e5ea", label="impossible"
            )
            ax.set_ylim(bottom=bottom)
        for (name, (x, y)), marker in zip((dots or {}).items(), "osD^v"):
            ax.plot(
                x, y, marker, color=INK, markersize=4, fillstyle="none",
                label=name,
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="size", ylabel="time")
        _sizes(ax)
        ax.yaxis.set_major_formatter(lambda value, _: show_seconds(value))
        ax.legend(loc="upper left")

    names = map(_words, [*seconds, *(dots or {})])
    words = f"seconds by size: {', '.join(names)}"
    words += ", with a lower bound" if bound is not None else ""
    return Picture(draw, words, (5.2, 4.6))


def plot_winners(
    world_sizes: Sequence[int],
    sizes: Sequence[float],
    winners: Sequence[Sequence[str]],
) -> Picture:
    """Draw a map: which algorithm is fastest for how many ranks and bytes.

    Args:
        world_sizes: Numbers of ranks: a row of the map for each.
        sizes: Bytes on each rank, evenly spaced on a logarithmic axis.
        winners: As ``dpkit.theory.collectives.choice.winners`` returns them.
    """
    names = sorted({name for row in winners for name in row})
    colours = dict(zip(names, COLOURS))
    runs = [
        run for p, row in zip(world_sizes, winners) for run in _runs(p, row)
    ]
    step = (sizes[1] / sizes[0]) ** 0.5

    def draw(ax: Axes) -> None:
        for run in runs:
            ends = sizes[run.start] / step, sizes[run.stop - 1] * step
            colour = mpl.colors.to_rgba(colours[run.name], 0.3)
            bottom = run.world_size - 0.5
            ax.fill_between(ends, bottom, bottom + 1, color=colour, lw=0)
        for name in names:
            run = _place([run for run in runs if run.name == name])
            x = (sizes[run.start] * sizes[run.stop - 1]) ** 0.5
            text = ax.text(x, run.world_size, _words(name), fontsize=10.5)
            text.set(ha="center", va="center")
        _frame(ax, world_sizes, (sizes[0] / step, sizes[-1] * step))

    title = f"the fastest by ranks and size: {', '.join(map(_words, names))}"
    return Picture(draw, title, (5.2, 4.2))


class Run(NamedTuple):
    """Sizes that follow each other with the same winner, in a row."""

    world_size: int
    name: str
    start: int
    stop: int


def _runs(world_size: int, row: Sequence[str]) -> Iterator[Run]:
    # tree tree ring: the first run is tree from 0 to 2, the next ring, 2 to 3.
    start = 0
    for name, same in groupby(row):
        stop = start + len(list(same))
        yield Run(world_size, name, start, stop)
        start = stop


def _place(runs: Sequence[Run]) -> Run:
    """Return the run that a name is written into: a long one, halfway."""
    lengths = [run.stop - run.start for run in runs]
    enough = 0.7 * max(lengths)
    long = [run for run, length in zip(runs, lengths) if length >= enough]
    return long[len(long) // 2]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _frame(
    ax: Axes, world_sizes: Sequence[int], width: tuple[float, float]
) -> None:
    ax.set(xscale="log", xlabel="size", ylabel="ranks", xlim=width)
    _sizes(ax)
    ax.set_ylim(world_sizes[0] - 0.5, world_sizes[-1] + 0.5)
    ax.set_yticks([p for p in world_sizes if p % 2 == 0 or p < 4])
    ax.grid(visible=False)


def _sizes(ax: Axes) -> None:
    """Label the axis of sizes at kB, MB and GB."""
    ax.xaxis.set_major_locator(LogLocator(1000))
    ax.xaxis.set_major_formatter(lambda value, _: show_bytes(int(value)))
    ax.xaxis.set_minor_locator(NullLocator())
