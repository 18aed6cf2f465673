"""Drawings of the ways to split a network."""

from matplotlib.axes import Axes

from dpbook.common.boxes import arrow, box
from dpbook.common.plots import COLOURS, Picture
from dpkit.theory.timeline.drawing import QUIET
from dpkit.theory.timeline.timeline import Timeline


def draw_stages(num_stages: int = 2) -> Picture:
    """Draw a network in stages: activations go on, gradients come back."""

    def draw(ax: Axes) -> None:
        for stage in range(num_stages):
            x = 2.4 * (stage + 1)
            colour = COLOURS[stage % len(COLOURS)]
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


def on_two_devices(step: Timeline, name: str) -> Timeline:
    """Return what the first two devices do, for a drawing with a name."""
    spans = [s for s in step.spans if s.device in ("sim:0", "sim:1")]
    return Timeline(spans, label=f"{name}, {step.label}")
