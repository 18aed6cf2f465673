"""Pictures of gradients on their way."""

from itertools import accumulate

from matplotlib.axes import Axes

from dpbook.common.plots import Picture
from dpbook.overlap.runs import SimulatedStep


def plot_ready(step: SimulatedStep) -> Picture:
    """Draw how many bytes of gradients are there, against time."""

    def draw(ax: Axes) -> None:
        times = [0.0, *(1e3 * t for t in step.ready)]
        megabytes = [0.0, *(b / 1e6 for b in accumulate(step.bucket_bytes))]
        ax.step(times, megabytes, where="post")
        ax.set(xlim=(0, None), ylim=(0, None), ylabel="MB of gradients")
        ax.set_xlabel("ms since the step began, simulated")

    return Picture(draw, "gradients that are there, by time")
