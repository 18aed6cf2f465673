"""Pictures of gradients on their way."""

from itertools import accumulate

from matplotlib.axes import Axes

from dpbook.common.lanes import Block, Lane, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpbook.overlap.runs import SimulatedStep

LAYERS = ("4", "3", "2", "1")  # in the order of backward
# The columns that a layer takes for backward, and to send its gradient.
COMPUTE, SEND = 2.0, 1.5
LATENCY = 1.5  # of a message, in columns


def plot_ready(step: SimulatedStep) -> Picture:
    """Draw how many bytes of gradients are there, against time."""

    def draw(ax: Axes) -> None:
        times = [0.0, *(1e3 * t for t in step.ready)]
        megabytes = [0.0, *(b / 1e6 for b in accumulate(step.bucket_bytes))]
        ax.step(times, megabytes, where="post")
        ax.set(xlim=(0, None), ylim=(0, None), ylabel="MB of gradients")
        ax.set_xlabel("ms since the step began, simulated")

    return Picture(draw, "gradients that are there, by time")


def draw_buckets() -> Panels:
    """Draw a link that sends the gradients of four layers, in buckets.

    Example:
        >>> [round(ends_at(count), 1) for count in (1, 2, 4)]
        [15.5, 13.0, 14.0]
    """
    layers = [
        Block(name, COMPUTE * i, COMPUTE) for i, name in enumerate(LAYERS)
    ]
    lanes = [Lane("backward", layers, device(0).colour)]
    for count, colour in zip((1, 2, 4), COLOURS[1:]):
        name = f"link, {count}\nbucket" + "s" * (count > 1)
        lanes.append(Lane(name, messages(count), colour))
    drawn = draw_lanes(
        "Backward, and a link that sends",
        lanes,
        description="Backward goes from layer 4 to layer 1. With one bucket "
        "the link waits until backward ends. With two and with four buckets "
        "it sends during backward, and pays a latency for each.",
    )
    return Panels([drawn], in_a_row=1, width=24)


def messages(count: int) -> list[Block]:
    """Return what a link does that sends all gradients in equal buckets.

    A bucket is sent when all of its layers are done and the link is free.
    """
    blocks: list[Block] = []
    free = 0.0
    for bucket in range(count):
        size = len(LAYERS) // count
        names = LAYERS[bucket * size : (bucket + 1) * size]
        start = max(free, COMPUTE * size * (bucket + 1))
        if start > free:
            label = "waits" if start - free > 2 else ""
            blocks.append(Block(label, free, start - free, is_idle=True))
        blocks.append(Block("", start, LATENCY))
        blocks.append(Block(", ".join(names), start + LATENCY, SEND * size))
        free = start + LATENCY + SEND * size
    return blocks


def ends_at(count: int) -> float:
    """Return when the last of equal buckets has been sent."""
    last = messages(count)[-1]
    return last.start + last.length
