"""The pictures of the page ``limits``: what was predicted and measured."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from dpkit.lab.common.plots import COLOURS, Picture
from dpkit.lab.limits.comparisons import Comparison
from dpkit.lab.limits.trust import BY_ZERO
from dpkit.theory.timeline.drawing import INK, QUIET

# The classes of work of the two pictures: a colour and a shape for each. The
# last six have the colours of those which are of their kind.
NETWORKS = "convolutions", "transformers", "pipelines"
TRAINING = (
    *NETWORKS,
    "plans",
    "products",
    "networks on a CPU",
    "small networks",
    "grouped convolutions",
    "depthwise convolutions",
    "small transformers",
    "one layer",
    *BY_ZERO.values(),
)
WHERE = "in a node", "between nodes", "by messages"
MESSAGES = ("copies", *(f"collectives {where}" for where in WHERE))
OF_CONVOLUTIONS, OF_TRANSFORMERS, _, OF_PLANS = COLOURS[:4]
LOOKS = tuple(
    zip(
        "osDX^vP<>phd8",
        (
            *(*COLOURS, INK, QUIET),
            *[OF_CONVOLUTIONS] * 2,
            *[OF_TRANSFORMERS] * 2,
            *[OF_PLANS] * 2,
        ),
        strict=True,
    )
)
TICKS = {1e-5: "10 µs", 1e-3: "1 ms", 0.1: "0.1 s", 10: "10 s"}
RATIOS = 0.01, 0.1, 0.5, 1, 2, 5  # marked, of predicted and measured
NEAR = 1.2  # the factor up to which the band goes, each way
SIZE = (5.2, 5.0)  # inches


def plot_comparisons(
    rows: Sequence[Comparison], works: Sequence[str]
) -> Picture:
    """Draw predicted divided by measured seconds, a mark for each row.

    ``works`` are the classes to draw. A mark is hollow, or a small full one
    where a constant was fitted. Ratios, which have no seconds, are left out.
    """
    drawn = [row for row in rows if row.seconds and row.work in works]

    def draw(ax: Axes) -> None:
        _draw_band(ax, drawn)
        looks = LOOKS[: len(works)]
        for work, (marker, colour) in zip(works, looks, strict=True):
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
        place: Any = {"loc": "upper left", "bbox_to_anchor": (-0.19, -0.13)}
        ax.legend(**place, ncols=2, columnspacing=0.8, handletextpad=0.1)

    return Picture(draw, f"predicted by measured: {', '.join(works)}", SIZE)


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
