"""How steps scale with the devices, and where the time of each goes."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from dpbook.common.plots import COLOURS, Picture
from dpkit.theory.clock.record import is_host
from dpkit.theory.timeline.drawing import QUIET
from dpkit.theory.timeline.timeline import Timeline

PARTS = ("computing", "replicating", "returning", "images", "idle")


def plot_speedups(
    lines: Mapping[str, Mapping[str, Mapping[int, float]]], ylabel: str
) -> Picture:
    """Draw speed-ups against the number of devices, beside the ideal.

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
