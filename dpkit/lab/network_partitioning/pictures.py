"""What a pipeline keeps; and its forward and backward passes, told apart."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes

from dpkit.lab.common.plots import Picture
from dpkit.theory.clock.record import Span
from dpkit.theory.pipelines.actions import Schedule
from dpkit.theory.pipelines.replay import Seconds, replay
from dpkit.theory.timeline.timeline import Timeline


def plot_kept(given: Mapping[str, Schedule], seconds: Seconds) -> Picture:
    """Draw how many micro-batches the first device keeps during a step."""

    def draw(ax: Axes) -> None:
        for (name, schedule), style in zip(given.items(), ("-", "--")):
            ms, kept = [0.0], [0]
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
    """Return what devices compute, told apart by forward and backward.

    Autograd's thread launches backward. A device runs what its host launches,
    in the same order: the third ``mm`` on sim:1 belongs to the third launch
    of ``mm`` on host:1. Each device needs a host.
    """
    threads, last = defaultdict(list), {}
    ordered = sorted(timeline.spans, key=lambda span: span.start)
    for span in ordered:
        if span.kind == "launch":
            host = span.device.removeprefix("host:")
            threads[host, span.name].append(span.stream)
    told: list[Span] = []
    for span in ordered:
        if span.kind != "compute":
            continue
        rank = span.device.removeprefix("sim:")
        kind = "forward"
        if threads[rank, span.name].pop(0) == "backward":
            kind, last[rank] = "traced backward", len(told)
        told.append(replace(span, kind=kind))
    for i, span in enumerate(told):
        if i > last[span.device.removeprefix("sim:")]:
            told[i] = replace(span, kind="after both")
    return Timeline(told, label=timeline.label)
