"""What a pipeline keeps, schedules together, and what devices compute."""

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes

from dpbook.common.plots import Picture
from dpkit.schedules import Schedule, Seconds
from dpkit.schedules.replay import replay
from dpkit.sim.timeline import Timeline


def plot_kept(given: Mapping[str, Schedule], seconds: Seconds) -> Picture:
    """Draw how many micro-batches the first device keeps during a step.

    Args:
        given: The schedules to compare, by name.
        seconds: The seconds of each kind of action, as
            ``dpkit.schedules.replay`` takes them.
    """

    def draw(ax: Axes) -> None:
        for (name, schedule), style in zip(given.items(), ("-", "--")):
            ms = [0.0]
            kept = [0]
            for span in replay(schedule, seconds).spans:
                if span.device == "device 0":
                    begins = span.kind == "forward"
                    ms.append(1e3 * (span.start if begins else span.end))
                    kept.append(kept[-1] + (1 if begins else -1))
            ax.step(ms, kept, style, where="post", label=name)
        ax.set(xlabel="ms", ylabel="micro-batches kept", ylim=0)
        ax.legend()

    return Picture(draw, f"micro-batches kept over time: {', '.join(given)}")


def replays(given: Mapping[str, Schedule], seconds: Seconds) -> Timeline:
    """Return what devices do in several schedules, as one timeline.

    Args:
        given: The schedules, by the names that stand before the devices.
        seconds: The seconds of each kind of action, as
            ``dpkit.schedules.replay`` takes them.
    """
    spans = [
        replace(span, device=f"{name}, {span.device}")
        for name, schedule in given.items()
        for span in replay(schedule, seconds).spans
    ]
    return Timeline(spans, label=" and ".join(given))


def computing(timeline: Timeline) -> Timeline:
    """Return what devices compute, without copies and hosts."""
    spans = [span for span in timeline.spans if span.kind == "compute"]
    return Timeline(spans, label=timeline.label)
