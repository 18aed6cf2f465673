"""How steps scale with the devices, and where the time of each goes."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from dpbook.common.lanes import Arrow, Block, Lane, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpkit.sim.clock import is_host
from dpkit.sim.timeline import Timeline
from dpkit.sim.timeline.drawing import QUIET, Drawing

PARTS = ("computing", "replicating", "returning", "images", "idle")


def plot_speedups(
    lines: Mapping[str, Mapping[str, Mapping[int, float]]], ylabel: str
) -> Picture:
    """Draw speed-ups against the number of devices, and the ideal.

    ``lines``: machine -> engine -> number of devices -> speed-up.
    """
    rows = [
        (machine, engine, line, colour, style)
        for (machine, engines), colour in zip(lines.items(), COLOURS)
        for (engine, line), style in zip(engines.items(), ("o-", "s--"))
    ]

    def draw(ax: Axes) -> None:
        counts = sorted({k for _, _, line, _, _ in rows for k in line})
        ax.plot(counts, counts, ":", color=QUIET, label="ideal")
        for machine, engine, line, colour, style in rows:
            label = f"{machine}: {engine}"
            ax.plot(*zip(*line.items()), style, color=colour, label=label)
        ax.set(xlabel="devices", ylabel=ylabel, xticks=counts, ylim=(0, None))
        ax.legend(loc="upper left")

    names = ", ".join(f"{machine} {engine}" for machine, engine, *_ in rows)
    return Picture(draw, f"{ylabel} by devices: {names}", (5.2, 3.8))


def shares(timeline: Timeline) -> dict[str, dict[str, float]]:
    """Return where the time of each device went in a step of the wrapper.

    Device -> part -> fraction of the makespan. Parameters are copied to a
    replica ("replicating"); outputs and gradients come back ("returning").
    """
    found: dict[str, dict[str, float]] = {}
    for span in timeline.spans:
        if not is_host(span.device):
            parts = found.setdefault(span.device, dict.fromkeys(PARTS, 0.0))
            seconds = (span.end - span.start) / timeline.makespan
            parts[_part(span.device, span.kind, span.name)] += seconds
    for parts in found.values():
        parts["idle"] = 1 - sum(parts.values())
    return dict(sorted(found.items()))


def _part(device: str, kind: str, name: str) -> str:
    """Return what a span of a device belongs to, by the way that it copies."""
    if kind != "copy":
        return "computing"
    if name == "copy from host":
        return "images"
    target = name.split()[-1] if name.startswith("copy to") else device
    return "returning" if target.endswith(":0") else "replicating"


def draw_second_device() -> Panels:
    """Draw what a second device saves of a step, and what it adds."""
    return Panels([_alone(), _together()], in_a_row=1, width=24)


def _alone() -> Drawing:
    device_0 = [Block("256 images", 1, 4), Block("update", 5)]
    lanes = [
        Lane("device 0", device_0, COLOURS[0]),
        Lane("host", [Block("launch", 0)]),
    ]
    description = "The host launches, and the device computes on 256 images."
    return draw_lanes(
        "One device",
        lanes,
        [Arrow((1, 0), (0, 1))],
        description=description,
        num_columns=6,
    )


def _together() -> Drawing:
    device_0 = [Block("128 images", 1, 2), Block("sum", 4, 0.8)]
    device_1 = [Block("128 images", 2, 2)]
    lanes = [
        Lane("device 0", [*device_0, Block("update", 4.8)], COLOURS[0]),
        Lane("host", [Block("launch", 0), Block("launch", 1)]),
        Lane("device 1", [*device_1, Block("update", 4.8)], COLOURS[1]),
    ]
    sent = [
        Arrow((1, 0), (0, 1)),
        Arrow((1, 1), (2, 2)),
        Arrow((2, 3), (0, 4)),
        Arrow((0, 3.75), (2, 4.8)),
    ]
    return draw_lanes(
        "Two devices",
        lanes,
        sent,
        description="The host launches twice, and each device computes on 128 "
        "images. Device 1 sends its gradients to device 0, and the sums come "
        "back.",
        num_columns=6,
    )
