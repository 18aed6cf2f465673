"""A timeline as a picture: a row for each stream, a bar for each span.

What computes has a colour for forward and one, with stripes, for backward. A
bar of a pipeline has its micro-batch, and its stage where a device has
several. Spans too short to see share a bar, as tall as the part of the time
they fill. Where a device that computes is idle, its row is hatched.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dpkit.sim.clock.record import Record, Row, Span, streams
from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.bars import (
    Bar,
    fewest,
    is_action,
    labels,
    tooltip,
    with_several_stages,
)
from dpkit.sim.timeline.summary import covered
from dpkit.units import show_seconds, time_unit

BACKWARD_FILL = "url(#backward)"
OTHER = "other computing"  # in a timeline that has backward
SPAN_FILLS = {
    "compute": drawing.BLUE,
    "forward": drawing.BLUE,
    "backward": BACKWARD_FILL,
    "input gradients": BACKWARD_FILL,
    "weight gradients": drawing.VIOLET,
    OTHER: drawing.VIOLET,
    "copy": "url(#copy)",
    "launch": drawing.QUIET,
    "wait": "#ffffff",
}
PHASES = ("forward", "backward", "input gradients", "weight gradients")
WORDS = {
    "compute": "computing",
    "copy": "copying",
    "launch": "launching",
    "wait": "waiting",
}
STRIPES = (
    ("copy", drawing.AMBER),
    ("backward", drawing.GREEN, -45, "#ffffff", 0.3),  # letters stand on it
    ("idle", drawing.TRACK, -45, drawing.STRIPE),
)
HALOS = {
    "copy": drawing.AMBER,
    "backward": drawing.GREEN,
    "input gradients": drawing.GREEN,
}
COMPUTES = ("compute", "computes")  # rows that are hatched where idle
ALWAYS = ("compute", "python")  # a row alone under this name needs no name
NO_NAMES = ("stream ", "copies", "peer copies")  # begin like these
# Pixels of the picture.
FIRST_ROW_Y = 66
ROW = 23
BAR = 20
GAP = 8  # between devices
RIGHT_MARGIN = 14
LONG = 12  # letters: where a device has more, names stand above the rows
FRAMED = 4.0  # the width of a frame that can be seen as one
NARROW = "#7d8796"  # what fills a frame that is narrower
PASS_NOTE = "F3: forward of micro-batch 3; narrow bars have its number alone"
STAGE_NOTE = "1F3: on stage 1, forward of micro-batch 3; narrow bars: 3 alone"
NOTE = "low bars: work and short pauses in turn, as tall as the share of work"
Rows = dict[str, dict[str, list[Span]]]
Places = dict[Row, float]


@dataclass(frozen=True)
class Scale:
    """Where on the page a moment lies."""

    start: float
    end: float
    left: float

    @property
    def pixels_per_second(self) -> float:
        """The width of one second."""
        return (drawing.WIDTH - RIGHT_MARGIN - self.left) / (
            self.end - self.start
        )

    def x(self, seconds: float) -> float:
        """Return where a moment lies."""
        return self.left + (seconds - self.start) * self.pixels_per_second

    def width(self, bar: Bar) -> float:
        """Return the width of a bar, a little less than its time's."""
        width = (bar.end - bar.start) * self.pixels_per_second
        return width - 0.6 if width > 3 else max(width, 0.6)


def draw_timeline(
    record: Record,
    least_seconds: float,
    by_row: Mapping[Row, Sequence[Bar]] | None = None,
) -> drawing.Drawing:
    """Draw what :meth:`Timeline.draw` shows.

    Args:
        record: What happened.
        least_seconds: What the axis covers at the least.
        by_row: The bars of each row; by default those of its spans.
    """
    record = replace(record, spans=_by_phase(record.spans))
    rows = streams(record.spans)
    title = _title(record, rows)
    if not rows:
        message = "no spans: nothing took time in this timeline"
        return drawing.page([drawing.text(14, 30, message)], 48, title)
    seconds = max(record.makespan, least_seconds) or 1e-6
    scale = Scale(record.start, record.start + seconds, _gutter(rows))
    entries = _legend(record)
    places = _places(rows, len(drawing.legend_lines(14, entries)))
    bottom = max(places.values()) + BAR + 6
    parts = _head(record, entries) + _tracks(rows, places, scale)
    parts += _axis(scale, min(places.values()), bottom)
    pixel = 1 / scale.pixels_per_second
    by_row = by_row or fewest(record.spans, pixel, FRAMED * pixel)
    bars = [(places[row], bar) for row in by_row for bar in by_row[row]]
    several = with_several_stages(record.spans)
    parts += chain(*(_bar(bar, y, scale, several) for y, bar in bars))
    if any(_height(bar) < BAR - 1 for _, bar in bars):
        bottom += 26
        parts.append(drawing.quiet_text(14, bottom + 20, NOTE))
    if any(is_action(span.name) for span in record.spans):
        bottom += 26
        note = STAGE_NOTE if several else PASS_NOTE
        more = f' class="in-bar" fill="{drawing.QUIET}"'
        parts.append(drawing.text(14, bottom + 20, note, more=more))
    return drawing.page(parts, bottom + 30, title)


# A step that is traced: spans of the kind "compute" in three phases.
#
#     phase    forward    backward    ""
#     kind     forward    backward    other computing


def _by_phase(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, those that compute with their phase for a kind.

    Without backward there is nothing to tell apart, and all is computing.
    """
    if not any(span.phase == "backward" for span in spans):
        return list(spans)
    return [
        replace(span, kind=span.phase or OTHER)
        if span.kind == "compute"
        else span
        for span in spans
    ]


def _title(record: Record, rows: Rows) -> str:
    label = f"timeline, {record.label}" if record.label else "timeline"
    if not rows:
        return f"{label}: no spans"
    names = list(rows)
    shown = ", ".join(names if len(names) <= 9 else [*names[:8], "…"])
    title = f"{label}: {shown}, {show_seconds(record.makespan)}"
    return title + _passes(record.spans)


def _passes(spans: Sequence[Span]) -> str:
    """Return how long the first device is in forward and in backward."""
    # timeline, 1F1B: device 0, …, 33 ms; device 0: forward 8 ms, …
    for device, rows in streams(list(spans)).items():
        here = [span for row in rows.values() for span in row]
        found = {span.kind for span in here}
        if found.isdisjoint(PHASES):
            continue
        times = {
            kind: covered(s for s in here if s.kind == kind)
            for kind in (*PHASES, OTHER)
            if kind in found
        }
        said = [f"{kind} {show_seconds(t)}" for kind, t in times.items()]
        return f"; {device}: {', '.join(said)}"
    return ""


def _row_names(rows: Rows) -> dict[Row, tuple[str, str]]:
    """Return what stands before each row: the device, then what it does."""
    names = {}
    for device, row in rows.items():
        for i, (stream, spans) in enumerate(row.items()):
            alone = len(row) == 1 and stream in ALWAYS
            role = "" if alone else drawing.cut(_does(stream, spans), 15)
            names[device, stream] = (device if i == 0 else "", role)
    return names


def _does(stream: str, spans: Sequence[Span]) -> str:
    """Return the name of a stream, or else what it does."""
    if stream == "compute":
        return "computes"
    has_name = not stream.startswith(NO_NAMES)
    if has_name or {span.kind for span in spans} != {"copy"}:
        return stream
    sends = any("copy from " not in span.name for span in spans)
    receives = any("copy to " not in span.name for span in spans)
    return ", ".join(["sends"] * sends + ["receives"] * receives)


def _above(rows: Rows) -> bool:
    """Return whether a device's name stands above its rows, being long."""
    return any(len(device) > LONG for device in rows)


def _gutter(rows: Rows) -> float:
    names = [n[_above(rows) :] for n in _row_names(rows).values()]
    letters = max(len(" ".join(filter(None, name))) for name in names)
    return max(80, 14 + drawing.LETTER * letters + 22)


def _places(rows: Rows, lines: int) -> Places:
    """Return the top of each row, below the lines of the legend."""
    places = {}
    y = FIRST_ROW_Y + 22.0 * (lines - 1)
    for device, row in rows.items():
        y += ROW * _above(rows)
        for stream in row:
            places[device, stream] = y
            y += ROW
        y += GAP
    return places


def _head(record: Record, entries: Sequence[drawing.Entry]) -> list[str]:
    """Define the stripes; write the label, the makespan and the legend."""
    label = drawing.cut(record.label or "timeline", 44)
    makespan = f"makespan {show_seconds(record.makespan)}"
    fills = [fill for _, fill, _ in entries]
    used = [s for s in STRIPES if f"url(#{s[0]})" in fills]
    parts = [drawing.hatch(*stripes) for stripes in used]
    parts.append(drawing.bold_text(14, 22, label))
    right = drawing.WIDTH - 14
    if drawing.LETTER * len(label + makespan) < drawing.WIDTH - 40:
        parts.append(drawing.quiet_text(right, 22, makespan, anchor="end"))
    return parts + drawing.legend(14, 48, entries)


def _legend(record: Record) -> list[drawing.Entry]:
    found = {span.kind for span in record.spans}
    kinds = drawing.known_first(SPAN_FILLS, found)
    entries = [(WORDS.get(k, k), _fill(k), _outline(k)) for k in kinds]
    if any(span.stream in COMPUTES for span in record.spans):
        entries.append(("idle", "url(#idle)", ""))
    return entries


def _fill(kind: str) -> str:
    return SPAN_FILLS.get(kind, drawing.VIOLET)


def _outline(kind: str) -> str:
    """Return what makes waiting hollow: a frame around white."""
    frame = f' stroke="{drawing.QUIET}" stroke-width="1"'
    return frame if kind == "wait" else ""


def _tracks(rows: Rows, places: Places, scale: Scale) -> list[str]:
    """Draw the ground of each row, and its names before it."""
    parts = []
    names = _row_names(rows)
    for row, y in places.items():
        device, stream = names[row]
        width = drawing.WIDTH - RIGHT_MARGIN - scale.left
        ground = "url(#idle)" if row[1] in COMPUTES else drawing.TRACK
        parts.append(drawing.box(scale.left, y, width, BAR, fill=ground))
        if device:
            top = y - ROW * _above(rows)
            parts.append(drawing.bold_text(14, top + 15, device))
        if stream:
            x = scale.left - 6
            parts.append(drawing.quiet_text(x, y + 15, stream, anchor="end"))
    return parts


def _axis(scale: Scale, top: float, bottom: float) -> list[str]:
    """Draw round times below the rows, and a thin line up from each."""
    unit, name = time_unit(scale.end - scale.start)
    parts = [drawing.quiet_text(14, bottom + 17, name)]
    for x, label in drawing.ticks(
        start=scale.start / unit,
        end=scale.end / unit,
        left=scale.left,
        right=drawing.WIDTH - RIGHT_MARGIN,
    ):
        parts.append(drawing.line(x, top - 4, x, bottom, colour=drawing.GRID))
        # Words at the right end would reach over the edge.
        half = drawing.LETTER * len(label) / 2
        at = x
        anchor = "middle"
        if x + half > drawing.WIDTH - 4:
            at = drawing.WIDTH - 6
            anchor = "end"
        parts.append(drawing.quiet_text(at, bottom + 17, label, anchor=anchor))
    return parts


def _bar(
    bar: Bar, y: float, scale: Scale, several: Collection[str]
) -> list[str]:
    """Draw a bar, its tooltip, and its name where that fits."""
    x = scale.x(bar.start)
    width = scale.width(bar)
    shape = _shape(bar, x, y, width)
    title = drawing.escape(tooltip(bar))
    parts = [f"{shape[:-2]}><title>{title}</title></rect>"]
    if bar.count > 1:
        return parts
    names = labels(bar.first.name, bar.first.device in several)
    return parts + _name(names, bar.first.kind, x + width / 2, y, width)


def _shape(bar: Bar, x: float, y: float, width: float) -> str:
    kind = bar.first.kind
    height = _height(bar)
    # Low bars of these kinds hang from the top of the row, so that they do
    # not hide those of the other kind.
    top = y if kind in ("copy", "wait") else y + BAR - height
    if kind != "wait":
        return drawing.box(x, top, width, height, fill=_fill(kind))
    if width < FRAMED or height < FRAMED:
        return drawing.box(x, top, width, height, fill=NARROW)
    return drawing.box(  # half of the frame lies outside
        x + 0.5,
        top + 0.5,
        width - 1,
        height - 1,
        fill="#ffffff",
        more=_outline(kind),
    )


def _height(bar: Bar) -> float:
    if bar.count == 1 or bar.end <= bar.start:
        return BAR
    return max(1.5, BAR * min(1.0, bar.busy / (bar.end - bar.start)))


def _name(
    names: Sequence[str], kind: str, middle: float, y: float, width: float
) -> list[str]:
    """Write the first of some names that fits into a bar."""
    for name in names:
        if _breadth(name) <= width:
            fill = drawing.INK if kind == "wait" else "#ffffff"
            more = f' class="in-bar" font-size="11" fill="{fill}"'
            if kind in HALOS:  # no stripes behind the letters
                more += f' stroke="{HALOS[kind]}" {drawing.HALO}'
            return [
                drawing.text(middle, y + 14, name, anchor="middle", more=more)
            ]
    return []


def _breadth(name: str) -> float:
    """Return what words in a bar need, in pixels."""
    edges = 4 if len(name) > 1 else 1.5
    wide = sum(letter in "mwMW" for letter in name)
    return 6.4 * len(name) + 4 * wide + edges
