"""Drawings of the ways to split a network, and the map of who wins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log2

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from dpkit.lab.common.boxes import arrow, box
from dpkit.lab.common.plots import COLOURS, Picture, doublings
from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.splits import WAYS, estimate
from dpkit.theory.timeline.drawing import INK, QUIET
from dpkit.theory.timeline.timeline import Timeline

PALE = ListedColormap(["#eef0f3", "#cfe0fd", "#f6dfbf", "#c3ead9"])
CHOICES = ("one device", *WAYS)
MARKS = dict(zip(CHOICES, "osD^"))
# The axes of the map: four steps for each doubling.
ROWS = [2 ** (i / 4) for i in range(4 * 5, 4 * 17 + 1)]
WIDTHS = [2 ** (i / 4) for i in range(4 * 7, 4 * 14 + 1)]


def draw_stages(num_stages: int = 2) -> Picture:
    """Draw a network in stages: activations go on, gradients come back."""

    def draw(ax: Axes) -> None:
        for stage in range(num_stages):
            x, colour = 2.4 * (stage + 1), COLOURS[stage % len(COLOURS)]
            box(ax, x, 1, f"forward,\nstage {stage}", colour)
            box(ax, x, 0, f"backward,\nstage {stage}", colour)
            arrow(ax, (x - 2.4, 1), (x, 1))
            arrow(ax, (x + 2.4, 0), (x, 0), back=True)
        last = 2.4 * (num_stages + 1)
        arrow(ax, (last - 2.4, 1), (last, 1))
        box(ax, 0, 1, "batch", QUIET)
        box(ax, last, 1, "loss", QUIET)
        box(ax, last, 0, "its\ngradient", QUIET)
        ax.set(xlim=(-0.9, last + 0.9), ylim=(-0.5, 1.5))
        ax.axis("off")

    size = (1.25 * (num_stages + 2) + 0.4, 1.9)
    return Picture(draw, f"a network in {num_stages} stages", size)


def winner(rows: int, width: int, depth: int, cluster: Cluster) -> str:
    """Return the way whose step is estimated to be the fastest.

    Example:
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> winner(4096, 4096, 8, cluster(4, "v100", "pcie3"))
        'network'
    """
    one = estimate("data", rows, width, depth, replace(cluster, num_devices=1))
    times = {"one device": one.seconds}
    for way in WAYS:
        found = estimate(way, rows, width, depth, cluster)
        times[way] = found.seconds
    return min(times, key=lambda way: times[way])


def plot_map(
    cluster: Cluster, depth: int, found: Mapping[tuple[int, int], str]
) -> Picture:
    """Draw which way is the fastest, by rows and width.

    ``found``: rows and width -> the way that won where it was simulated.
    """
    wins = {
        (i, j): winner(round(b), round(w), depth, cluster)
        for i, b in enumerate(ROWS)
        for j, w in enumerate(WIDTHS)
    }
    numbers = [
        [CHOICES.index(wins[i, j]) for i in range(len(ROWS))]
        for j in range(len(WIDTHS))
    ]
    marks = [(4 * log2(b) - 4 * 5, 4 * log2(w) - 4 * 7) for b, w in found]

    def draw(ax: Axes) -> None:
        ax.pcolormesh(ROWS, WIDTHS, numbers, cmap=PALE, vmin=0, vmax=3)
        for name in sorted(set(wins.values())):
            i, j = _widest_place(wins, name, marks)
            ax.text(ROWS[i], WIDTHS[j], name, ha="center", va="center")
        for (b, w), name in found.items():
            ax.plot(b, w, MARKS[name], color=INK, markersize=5)
        ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="width")
        doublings(ax.xaxis)
        doublings(ax.yaxis)
        ax.grid(visible=False)

    return Picture(draw, f"the fastest way by rows and width: {cluster.name}")


def _widest_place(
    wins: Mapping[tuple[int, int], str],
    name: str,
    marks: Sequence[tuple[float, float]],
) -> tuple[int, int]:
    """Return where a region has most room for its name, beside marks."""
    across, up = max(wins)
    others = [place for place, won in wins.items() if won != name]
    taken = [*others, *marks]

    def room(place: tuple[int, int]) -> float:
        i, j = place  # words are three times as wide as high
        edge = min(i / 3, (across - i) / 3, j, up - j)
        return min(edge, *(max(abs(i - x) / 3, abs(j - y)) for x, y in taken))

    inside = [(i, j) for (i, j), won in wins.items() if won == name]
    return max(inside[::5], key=room)


def on_two_devices(step: Timeline, name: str) -> Timeline:
    """Return what the first two devices do, for a drawing with a name."""
    spans = [s for s in step.spans if s.device in ("sim:0", "sim:1")]
    return Timeline(spans, label=f"{name}, {step.label}")
