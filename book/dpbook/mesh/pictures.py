"""The groups of a mesh as a picture, and what devices compute and send."""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dpbook.common.plots import COLOURS, Picture
from dpbook.mesh.groups import Groups, groups_of
from dpkit.theory.timeline.drawing import QUIET
from dpkit.theory.timeline.timeline import Timeline

TINTS = ("#dbeafe", "#fef3c7", "#d1fae5", "#ede9fe")


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
                    place = rank + 0.3 * (rank // on_node) - 0.5, y - 0.4
                    ax.add_patch(
                        Rectangle(
                            place, 1, 0.8, facecolor=TINTS[i % 4],
                            edgecolor=COLOURS[i % 4],
                        )
                    )  # fmt: skip
                    ax.text(
                        place[0] + 0.5, y, f"{rank} {'abcdefgh'[i]}",
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
