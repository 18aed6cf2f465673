"""The bars in the picture of a timeline: which spans are drawn as one.

A picture has a few hundred pixels and a timeline many thousand spans: those
that are too short to see are drawn together.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpkit.sim.clock.record import Row, Span
from dpkit.sim.timeline.drawing import cut
from dpkit.units import show_amount, show_bytes, show_seconds

ACTION = re.compile(r"(\d+)([FBIW])(\d+)")  # of a schedule, such as 1F0


@dataclass
class Bar:
    """One or more spans of a kind, drawn as one."""

    first: Span
    start: float  # seconds, of the first
    end: float  # of the last
    busy: float  # the seconds in which they ran
    count: int = 1


def fewest(
    spans: Iterable[Span], pixel: float, framed: float, at_most: int = 1200
) -> dict[Row, list[Bar]]:
    """Return the bars to draw for spans, by row.

    Args:
        spans: What is drawn, in any order.
        pixel: How many seconds a pixel of the picture stands for.
        framed: The seconds from which on a wait can be seen; see
            :func:`merge`.
        at_most: About how many bars to return, in all rows together.
    """
    rows: dict[Row, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        rows.setdefault((span.device, span.stream), []).append(span)
    pixels = 0.5
    while True:
        bars = {
            name: merge(row, pixels * pixel, framed)
            for name, row in rows.items()
        }
        if sum(map(len, bars.values())) <= at_most or pixels > 1e4:
            return bars
        pixels *= 2


def merge(spans: Iterable[Span], shortest: float, framed: float) -> list[Bar]:
    """Draw together what is too short to see, and lies close together.

    The spans are those of one row, by their start. Spans below ``shortest``
    seconds cannot be seen, nor can gaps of a few times that; ``framed`` is
    the same for waiting, which is drawn as a frame. Each kind has its own
    bars. A span that can be seen ends them all, so that none lies across it.
    """
    # Shortest that can be seen: 2 s. Spans of 1, 1 and 20 s: the first two
    # become one bar of 3 s, the third stands alone and ends that bar.
    #
    #     spans    ## ## ####################
    #     bars     ===== ====================
    bars: list[Bar] = []
    growing: dict[str, Bar] = {}
    for span in spans:
        busy = span.end - span.start
        seen = max(shortest, framed if span.kind == "wait" else 0.0)
        bar = growing.get(span.kind)
        if bar and busy < seen and span.start - bar.end < 4 * shortest:
            bar.busy += max(0.0, span.end - max(span.start, bar.end))
            bar.end = max(bar.end, span.end)
            bar.count += 1
            continue
        bars.append(Bar(span, span.start, span.end, busy))
        if busy >= seen:
            growing.clear()
        else:
            growing[span.kind] = bars[-1]
    return bars


def labels(name: str, has_several: bool = False) -> list[str]:
    """Return what may stand in a bar, from the longest to the shortest.

    Args:
        name: That of the span.
        has_several: Whether its device has several stages of a pipeline.

    Example:
        >>> labels("0F3"), labels("1F3", has_several=True)
        (['F3', '3'], ['1F3', '3'])
        >>> labels("copy to sim:1")
        ['copy to sim:1', 'to sim:1']
    """
    if action := ACTION.fullmatch(name):
        stage, kind, micro_batch = action.groups()
        first = f"{stage}{kind}" if has_several else kind
        return [first + micro_batch, micro_batch]
    short = short_name(name)
    return list(dict.fromkeys([short, short.removeprefix("copy ")]))


def is_action(name: str) -> bool:
    """Return whether a span is an action of a schedule, such as ``1F0``."""
    return ACTION.fullmatch(name) is not None


def with_several_stages(spans: Iterable[Span]) -> set[str]:
    """Return the devices that have more than one stage of a pipeline."""
    stages: dict[str, set[str]] = {}
    for span in spans:
        if action := ACTION.fullmatch(span.name):
            stages.setdefault(span.device, set()).add(action[1])
    return {device for device, found in stages.items() if len(found) > 1}


def short_name(name: str) -> str:
    """Return the last part of a name in C++, and any other as it is."""
    # void at::native::reduce_kernel<4, float>(float*)    reduce_kernel
    if "::" not in name and not name.startswith("void "):
        return name
    bare = re.sub(r"\(anonymous namespace\)::", "", name)
    bare = re.split("[<(]", bare.removeprefix("void "))[0]
    return bare.rsplit("::", 1)[-1] or name


def tooltip(bar: Bar) -> str:
    """Return what a bar says when it is pointed at: name, times, amounts."""
    seconds = show_seconds(bar.end - bar.start)
    when = f"{seconds} from {show_seconds(bar.start)}"
    if bar.count > 1:
        name = cut(bar.first.name, 80)
        busy = show_seconds(bar.busy)
        return f"{bar.count} spans, the first: {name}\n{when}, busy {busy}"
    amounts = []
    if bar.first.num_bytes:
        amounts.append(show_bytes(bar.first.num_bytes))
    if bar.first.flops:
        amounts.append(show_amount(bar.first.flops, "FLOP"))
    lines = cut(bar.first.name, 160), when, ", ".join(amounts)
    return "\n".join(filter(None, lines))
