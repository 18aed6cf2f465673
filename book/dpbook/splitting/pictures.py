"""Drawings of the ways to split a network, and of two ways at once."""

from matplotlib.axes import Axes

from dpbook.common.boxes import arrow, box
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpbook.common.shares import Cell, Column, Device, Sent, draw_moment
from dpkit.sim.timeline import Timeline
from dpkit.sim.timeline.drawing import QUIET, Drawing

ON_NODE = Column("devices", x=66, width=164)


def draw_groups() -> Panels:
    """Draw eight devices on two nodes, in groups of two, in both ways."""
    return Panels(
        [
            _groups(
                "Groups of neighbours",
                "activations stay in a node",
                groups=[[0, 0, 1, 1], [2, 2, 3, 3]],
                sent="gradients",
                description="Node 0 has groups {0 1} and {2 3}, node 1 has "
                "groups {4 5} and {6 7}. Between the nodes pass gradients.",
            ),
            _groups(
                "Groups across the nodes",
                "gradients stay in a node",
                groups=[[0, 1, 2, 3], [0, 1, 2, 3]],
                sent="activations",
                description="The groups are {0 4}, {1 5}, {2 6} and {3 7}, "
                "each with a device on each node. Between the nodes pass "
                "activations and their gradients.",
            ),
        ],
        in_a_row=2,
    )


def _groups(
    title: str,
    when: str,
    *,
    groups: list[list[int]],
    sent: str,
    description: str,
) -> Drawing:
    nodes = []
    for node, of_devices in enumerate(groups):
        cells = [
            Cell(group, str(4 * node + i))
            for i, group in enumerate(of_devices)
        ]
        nodes.append(Device(f"node {node}", None, [[cells]]))
    arrows = [Sent(0, x=86, ends="both", label=sent)]
    return draw_moment(
        title,
        when,
        columns=[ON_NODE],
        devices=nodes,
        sent=arrows,
        description=description,
    )


def draw_stages(num_stages: int = 2) -> Picture:
    """Draw a network in stages: activations go on, gradients come back."""

    def draw(ax: Axes) -> None:
        for stage in range(num_stages):
            x = 2.4 * (stage + 1)
            colour = COLOURS[stage % len(COLOURS)]
            box(ax, x, 1, f"forward,\nstage {stage}", colour=colour)
            box(ax, x, 0, f"backward,\nstage {stage}", colour=colour)
            arrow(ax, (x - 2.4, 1), (x, 1))
            arrow(ax, (x + 2.4, 0), (x, 0), back=True)
        last = 2.4 * (num_stages + 1)
        arrow(ax, (last - 2.4, 1), (last, 1))
        box(ax, 0, 1, "batch", colour=QUIET)
        box(ax, last, 1, "loss", colour=QUIET)
        box(ax, last, 0, "its\ngradient", colour=QUIET)
        ax.set(xlim=(-0.9, last + 0.9), ylim=(-0.5, 1.5))
        ax.axis("off")

    size = (1.25 * (num_stages + 2) + 0.4, 1.9)
    return Picture(draw, f"a network in {num_stages} stages", size)


def on_two_devices(step: Timeline, name: str) -> Timeline:
    """Return what the first two devices do, for a drawing with a name."""
    spans = [s for s in step.spans if s.device in ("sim:0", "sim:1")]
    return Timeline(spans, label=f"{name}, {step.label}")
