"""What a pipeline keeps; and its forward and backward passes, apart."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes

from dpbook.common.plots import Picture
from dpkit.theory.clock.record import Span
from dpkit.theory.pipelines.actions import Schedule
from dpkit.theory.pipelines.replay import Seconds, replay
from dpkit.theory.timeline.timeline import Timeline


def plot_kept(given: Mapping[str, Schedule], seconds: Seconds) -> Picture:
    """Draw how many micro-batches the first device keeps during a step.

    Args:
        given: The schedules to compare, by name.
        seconds: The seconds of each kind of action, as
            ``theory.pipelines.replay`` takes them.
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


def by_pass(timeline: Timeline) -> Timeline:
    """Return what devices compute, forward apart from backward.

    Autograd's thread launches backward. A device runs what its host launches,
    in the same order: the third ``mm`` on sim:1 belongs to the third launch
    of ``mm`` on host:1. Each device needs a host.
    """
    threads = defaultdict(list)
    last = {}
    ordered = sorted(timeline.spans, key=lambda span: span.start)
    for span in ordered:
        if span.kind == "launch":
            host = span.device.removeprefix("host:")
            threads[host, span.name].append(span.stream)
    spans: list[Span] = []
    for span in ordered:
        if span.kind != "compute":
            continue
        rank = span.device.removeprefix("sim:")
        kind = "forward"
        if threads[rank, span.name].pop(0) == "backward":
            kind = "traced backward"
            last[rank] = len(spans)
        spans.append(replace(span, kind=kind))
    for i, span in enumerate(spans):
        if i > last[span.device.removeprefix("sim:")]:
            spans[i] = replace(span, kind="after both")
    return Timeline(spans, label=timeline.label)
