"""Blocks in a ring, which scores ranks compute, and what they do when."""

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpbook.common.shares import Column, Device, Sent, draw_moment, named
from dpbook.long_sequences.runs import Run
from dpkit.sequence import pieces
from dpkit.sim.timeline import Timeline
from dpkit.sim.timeline.drawing import Drawing

Point = tuple[float, float]
RING = [
    Column("queries", x=74, width=60),
    Column("keys, values", x=150, width=60),
]


def draw_ring() -> Panels:
    """Draw which blocks of keys three ranks have in the steps of a ring."""
    return Panels([_ring_step(step, num_ranks=3) for step in range(3)])


def _ring_step(step: int, num_ranks: int) -> Drawing:
    devices = []
    meet = []
    for rank in range(num_ranks):
        block = (rank - step) % num_ranks  # step 1: rank 0 has block 2
        blocks = named([str(rank)], rank), named([str(block)], block)
        devices.append(Device(f"rank {rank}", rank, blocks))
        meet.append(f"queries {rank} meet keys and values {block}")
    description = f"{', '.join(meet)}. "
    if step == num_ranks - 1:
        return draw_moment(
            f"Step {step}",
            "nothing is sent",
            columns=RING,
            devices=devices,
            sent=[],
            description=description,
        )
    sent = [Sent(above, x=180, ends="down") for above in range(num_ranks - 1)]
    description += (
        "Each rank sends its keys and values on to the next rank, and "
    )
    description += "the last rank sends its own to the first."
    when = "each block goes on to the next rank"
    return draw_moment(
        f"Step {step}",
        when,
        columns=RING,
        devices=devices,
        sent=sent,
        description=description,
        back_to_first=True,
    )


def draw_scores(k: int = 4) -> Picture:
    """Draw the causal scores of k ranks, in order and balanced."""

    def draw(ax: Axes) -> None:
        for balanced in (False, True):
            left = 1.45 * balanced
            _draw_square(ax, k, balanced, left)
            label = "head and tail" if balanced else "in order"
            ax.text(left + 0.5, -0.06, label, ha="center")
            ax.text(left + 0.5, 1.03, "keys →", ha="center", va="top")
        ax.set(xlim=(-0.3, 2.5), ylim=(1.12, -0.15), aspect="equal")
        ax.axis("off")

    return Picture(
        draw, f"which scores {k} ranks compute, in order and balanced"
    )


def _draw_square(ax: Axes, k: int, balanced: bool, left: float) -> None:
    """Draw the queries of each rank as rows, the keys that they see."""
    size = 1 / (2 * k if balanced else k)
    for rank in range(k):
        for piece in pieces(rank, k, balanced):
            top, low = piece * size, (piece + 1) * size
            corners: list[Point] = [
                (left, top), (left + top, top), (left + low, low), (left, low)
            ]  # fmt: skip
            ax.add_patch(
                Polygon(
                    corners, facecolor=COLOURS[rank % 5], edgecolor="white"
                )
            )
            ax.text(
                left - 0.02, (top + low) / 2, f"rank {rank}",
                ha="right", va="center",
            )  # fmt: skip


def forward_of(runs: Mapping[str, Run], least: float = 2e-4) -> Timeline:
    """Return what ranks do in forward of several runs, as one timeline.

    Args:
        runs: The runs by their names.
        least: What takes fewer seconds is left out.
    """
    spans = []
    for name, run in runs.items():
        for span in run.forward_spans():
            if span.end - span.start < least or "copy to" in span.name:
                continue
            rank = span.device.removeprefix("sim:")
            stream = "computes" if span.stream == "compute" else "receives"
            spans.append(
                replace(span, device=f"{name}, rank {rank}", stream=stream)
            )
    (label, *_) = (run.timeline.label for run in runs.values())
    return Timeline(spans, label=label)
