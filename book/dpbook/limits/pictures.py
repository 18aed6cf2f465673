"""The pictures of the page ``limits``: what was predicted and measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from dpbook.common.plots import COLOURS, Picture
from dpbook.limits.comparisons import Comparison
from dpbook.limits.on_gpu import COMPILED, EAGER, HOPPER
from dpbook.limits.trust import BY_ZERO, WITH_EXPERTS
from dpkit.sim.timeline.drawing import INK, QUIET

BLUE, BROWN, GREEN, VIOLET, RED = COLOURS
# The classes of work of the two pictures, and the marker and colour of each.
# Classes of one kind have one colour.
TRAINING = {
    "convolutions": ("o", BLUE),
    HOPPER: ("X", BLUE),
    "grouped convolutions": ("<", BLUE),
    "depthwise convolutions": (">", BLUE),
    "transformers": ("s", BROWN),
    "small transformers": ("p", BROWN),
    "one layer": ("h", BROWN),
    "attention": ("*", BROWN),
    "pipelines": ("D", GREEN),
    "plans": ("X", VIOLET),
    BY_ZERO["H100"]: ("d", VIOLET),
    BY_ZERO["A100"]: ("8", VIOLET),
    WITH_EXPERTS: ("s", VIOLET),
    "products": ("^", RED),
    "networks on a CPU": ("v", INK),
    "small networks": ("P", QUIET),
    EAGER: ("o", INK),
    COMPILED: ("D", INK),
}
MESSAGES = {
    "copies": ("o", BLUE),
    "collectives in a node": ("s", BROWN),
    "collectives between nodes": ("D", GREEN),
    "collectives by messages": ("X", VIOLET),
}
TICKS = {1e-5: "10 µs", 1e-3: "1 ms", 0.1: "0.1 s", 10: "10 s"}
RATIOS = 0.01, 0.1, 0.5, 1, 2, 5  # marked, of predicted and measured
NEAR = 1.2  # the factor up to which the band goes, each way
SIZE = (5.2, 5.0)  # inches


def plot_comparisons(
    rows: Sequence[Comparison], looks: Mapping[str, tuple[str, str]]
) -> Picture:
    """Draw predicted divided by measured seconds, a mark for each row.

    ``looks`` has the classes to draw, with the marker and the colour of each:
    ``TRAINING`` or ``MESSAGES``. A mark is hollow, or a small full one
    where a constant was fitted. Ratios, which have no seconds, are left out.
    """
    drawn = [row for row in rows if row.seconds and row.work in looks]

    def draw(ax: Axes) -> None:
        _draw_band(ax, drawn)
        for work, (marker, colour) in looks.items():
            style: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "linestyle": "",
                "markerfacecolor": "none",
                "markersize": 7,
                "markeredgewidth": 1.2,
            }
            _draw_work(ax, [r for r in drawn if r.work == work], style)
            ax.plot([], [], label=work, **style)
        ax.set(xlabel="measured", ylabel="predicted / measured")
        position: Any = {"loc": "upper left", "bbox_to_anchor": (-0.19, -0.16)}
        ax.legend(**position, ncols=2, columnspacing=0.8, handletextpad=0.1)

    return Picture(draw, f"predicted by measured: {', '.join(looks)}", SIZE)


def _draw_band(ax: Axes, rows: Sequence[Comparison]) -> None:
    times = [row.seconds[1] for row in rows if row.seconds]
    ends = min(times) / 2, max(times) * 2
    ax.axhspan(1 / NEAR, NEAR, color="#e5e7eb")
    ax.axhline(1, color=INK, linewidth=0.8)
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_ticks(list(TICKS), labels=TICKS.values())
    ax.yaxis.set_ticks(RATIOS, labels=[f"{ratio:g}" for ratio in RATIOS])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    ax.set(xlim=ends)


def _draw_work(
    ax: Axes, rows: Sequence[Comparison], style: dict[str, Any]
) -> None:
    fitted = {"markerfacecolor": style["color"], "markersize": 3}
    for row in rows:
        if row.seconds:
            predicted, measured = row.seconds
            own = style | (fitted if row.kind == "fitted" else {})
            ax.plot(measured, predicted / measured, **own)
