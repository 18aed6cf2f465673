"""What ranks keep, their groups, and what devices compute and send."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpbook.common.shares import Column, Device, Sent, draw_moment, grid
from dpbook.mesh.groups import Groups, groups_of
from dpkit.sim.timeline import Timeline
from dpkit.sim.timeline.drawing import QUIET, Drawing

TINTS = ("#dbeafe", "#fef3c7", "#d1fae5", "#ede9fe")
COLUMNS = [
    Column("model", x=74, width=72),
    Column("batch", x=170, width=52),
]
WHOLE = ("####",) * 4
LEFT, RIGHT = ("##..",) * 4, ("..##",) * 4
UPPER, LOWER = (
    ("####", "####", "....", "...."),
    ("....", "....", "####", "####"),
)


def draw_each_way() -> Panels:
    """Draw what two ranks have of a model of four blocks, in three layouts."""
    return Panels(
        [
            _two_ranks(
                "pp = 2",
                "two stages",
                models=(UPPER, LOWER),
                batches=(WHOLE, WHOLE),
                sent="activations, gradients",
                description="Rank 0 has the first two of four blocks, rank 1 "
                "the last two. Both take the whole batch.",
            ),
            _two_ranks(
                "fsdp = 2",
                "two shards",
                models=(LEFT, RIGHT),
                batches=(UPPER, LOWER),
                sent="shards, gradients",
                description="Each rank keeps half of each block, and takes "
                "half of the batch.",
            ),
            _two_ranks(
                "tp = 2",
                "two parts of each layer",
                models=(LEFT, RIGHT),
                batches=(WHOLE, WHOLE),
                sent="sums in each layer",
                description="Each rank has half of each block, and takes the "
                "whole batch.",
            ),
        ]
    )


def _two_ranks(
    title: str,
    when: str,
    models: Sequence[Sequence[str]],
    batches: Sequence[Sequence[str]],
    sent: str,
    description: str,
) -> Drawing:
    ranks = [
        Device(f"rank {rank}", rank, [grid(model, rank), grid(batch, rank)])
        for rank, (model, batch) in enumerate(zip(models, batches))
    ]
    arrows = [Sent(0, x=84, ends="both", label=sent)]
    description = f"{description} They send {sent}."
    return draw_moment(
        title,
        when,
        columns=COLUMNS,
        devices=ranks,
        sent=arrows,
        description=description,
        cell_height=9,
    )


def plot_groups(ranks: list[Groups], on_node: int) -> Picture:
    """Draw all ranks once for each dimension, with the letter of their group.

    Args:
        ranks: What :func:`~dpbook.mesh.groups.groups_on_rank` returns, of all.
        on_node: How many ranks a node has; they stand side by side.
    """
    names = list(ranks[0])

    def draw(ax: Axes) -> None:
        for line, name in enumerate(names):
            y = -float(line)
            ax.text(-0.7, y, name, ha="right", va="center")
            for i, group in enumerate(groups_of(ranks, name)):
                for rank in group:
                    corner = rank + 0.3 * (rank // on_node) - 0.5, y - 0.4
                    ax.add_patch(
                        Rectangle(
                            corner, 1, 0.8, facecolor=TINTS[i % 4],
                            edgecolor=COLOURS[i % 4],
                        )
                    )  # fmt: skip
                    ax.text(
                        corner[0] + 0.5, y, f"{rank} {'abcdefgh'[i]}",
                        ha="center", va="center",
                    )  # fmt: skip
        for node in range(len(ranks) // on_node):
            left = node * (on_node + 0.3) - 0.5
            ax.text(left, 0.55, f"node {node}", color=QUIET)
        ax.set_xlim(-2.4, len(ranks) + 0.5)
        ax.set_ylim(-len(names) + 0.4, 1)
        ax.set_axis_off()

    title = f"the groups of {', '.join(names)} of {len(ranks)} ranks"
    return Picture(draw, title, size=(5.2, 0.5 + 0.5 * len(names)))


def rows_of(timeline: Timeline, devices: list[str], stream: str) -> Timeline:
    """Return what devices compute, and what they send by one dimension.

    Args:
        timeline: Of a step.
        devices: Such as "sim:0".
        stream: The name of a dimension, of its stream.
    """
    spans = [
        span
        for span in timeline.spans
        if span.device in devices and span.stream in ("compute", stream)
    ]
    return Timeline(spans=spans, label=timeline.label)
