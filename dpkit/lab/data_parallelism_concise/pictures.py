"""Pictures of steps on several devices: how they scale, where time goes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from dpkit.lab.common.plots import COLOURS, SIZE, Picture
from dpkit.theory.clock.record import is_host
from dpkit.theory.timeline.drawing import QUIET
from dpkit.theory.timeline.timeline import Timeline

PARTS = ("computing", "replicating", "gathering", "images", "idle")


def plot_speedups(
    lines: Mapping[str, Mapping[str, Mapping[int, float]]], ylabel: str
) -> Picture:
    """Draw speed-ups against the number of devices, beside the ideal.

    Args:
        lines: Of each machine, which has a colour, and each engine, which
            has a style: the speed-up by the number of devices.
        ylabel: What is compared with what.

    Example:
        >>> plot_speedups({"v100": {"wrapper": {1: 1.0, 2: 1.7}}}, "speed-up")
        <picture: speed-up by devices: v100 wrapper>
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

    Args:
        timeline: Of a step in which each device has one stream.

    Returns:
        Device -> part -> fraction of the makespan: it computed; it sent or
        received parameters on their way to a replica ("replicating"), or
        outputs and gradients on their way to the first device ("gathering");
        it received the images; it was idle. They add up to one.

    Example:
        >>> from dpkit.theory.timeline.timeline import Span
        >>> work = Span("sim:1", "compute", "mm", "compute", 0.0, 3.0)
        >>> copy = Span("sim:1", "compute", "copy to sim:0", "copy", 3.0, 4.0)
        >>> shares(Timeline([work, copy]))["sim:1"]["gathering"]
        0.25
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
    """Say what a span of a device belongs to, by the way that it copies."""
    if kind != "copy":
        return "computing"
    if name == "copy from host":
        return "images"
    source, target = (name.split()[-1], device)
    if name.startswith("copy to"):
        source, target = target, source
    return "gathering" if target.endswith(":0") else "replicating"


def plot_shares(steps: Mapping[str, Timeline]) -> Picture:
    """Draw the shares of each device's time in steps of the wrapper.

    Args:
        steps: The timeline of a step by its name.

    Example:
        >>> from dpkit.theory.timeline.timeline import Span
        >>> work = Span("sim:0", "compute", "mm", "compute", 0.0, 3.0)
        >>> plot_shares({"v100": Timeline([work])})
        <picture: shares of the time of v100, sim:0>
    """
    rows = {
        f"{name}, {device}": parts
        for name, timeline in steps.items()
        for device, parts in shares(timeline).items()
    }

    def draw(ax: Axes) -> None:
        colours = (*COLOURS[:4], "#c9d1da")
        lefts = [0.0] * len(rows)
        for part, colour in zip(PARTS, colours):
            widths = [parts[part] for parts in rows.values()]
            ax.barh(list(rows), widths, 0.6, lefts, color=colour, label=part)
            lefts = [a + b for a, b in zip(lefts, widths)]
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set(xlabel="share of the step, simulated", xlim=(0, 1))
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.legend(
            ncols=3, loc="lower left", bbox_to_anchor=(-0.05, 1.0),
            columnspacing=1, handlelength=1.2,
        )  # fmt: skip

    size = (SIZE[0], 1.4 + 0.4 * len(rows))
    return Picture(draw, f"shares of the time of {'; '.join(rows)}", size)
