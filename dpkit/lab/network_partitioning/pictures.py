"""Forward and backward of a traced step, told apart."""

from collections import defaultdict
from dataclasses import replace

from dpkit.theory.clock.record import Span
from dpkit.theory.timeline.timeline import Timeline


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
