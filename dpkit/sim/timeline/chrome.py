"""Timelines in files: the trace events of Chrome, which Perfetto shows.

Files of dpkit have a list of events, as any trace, for the viewer. They also
hold the timeline itself, to be read back as it was.
"""

import gzip
import json
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpkit.sim.clock.record import Block, Record, Row, Span, streams
from dpkit.sim.timeline.kineto import Place, TraceEvent, read_profile

OURS = "dpkit"  # the key of the timeline


def write_trace(record: Record, path: str | Path) -> None:
    """Write a timeline; compressed if the path ends in ".gz"."""
    content = json.dumps(as_trace(record)).encode()
    if str(path).endswith(".gz"):
        content = gzip.compress(content, mtime=0)  # the same bytes every time
    Path(path).write_bytes(content)


def read_trace(path: str | Path) -> Record:
    """Read a trace that :func:`write_trace` or torch.profiler wrote.

    Raises:
        ValueError: the file is no trace, or no work of devices or hosts is
            in it.
    """
    content = _load(path)
    events = content.get("traceEvents")
    if not isinstance(events, list):
        raise ValueError(f"not a trace: no list traceEvents (path: {path})")
    try:
        if OURS in content:
            return _ours(content[OURS])
        record = read_profile(content)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"a trace event is not in the form of dpkit or torch.profiler "
            f"(path: {path}, error: {error!r})"
        ) from error
    if not record.spans:
        found = {str(e.get("cat")) for e in events if e.get("ph") == "X"}
        raise ValueError(
            f"no events of devices or operations in the trace "
            f"(path: {path}, events: {len(events)}, "
            f"categories: {sorted(found)})"
        )
    return record


# A span of 0.5 s to 0.75 s becomes the event
#
#     {"name": "mm", "cat": "compute", "ph": "X", "ts": 500000.0,
#      "dur": 250000.0, "pid": 1, "tid": 1000, "args": {…}}


def as_trace(record: Record) -> dict[str, Any]:
    """Return a timeline as the content of a trace."""
    places, events = _places(record)
    events += [_event(span, places) for span in record.spans]
    return {
        "displayTimeUnit": "ms",
        OURS: asdict(record),
        "traceEvents": events,
    }


def _places(record: Record) -> tuple[dict[Row, Place], list[TraceEvent]]:
    """Return process and thread of each row, and the events that name them."""
    places: dict[Row, Place] = {}
    events: list[TraceEvent] = []
    for pid, (device, rows) in enumerate(streams(record.spans).items(), 1):
        events += _names("process", device, (pid, 0), pid)
        for i, stream in enumerate(rows):
            # A viewer may take threads of one number for one thread.
            place = pid, 1000 + len(places)
            places[device, stream] = place
            events += _names("thread", stream, place, i)
    return places, events


def _names(what: str, name: str, place: Place, i: int) -> list[TraceEvent]:
    """Return the events that name a process or thread, and place it."""
    where = {"ph": "M", "pid": place[0], "tid": place[1]}
    return [
        {"name": f"{what}_name", **where, "args": {"name": name}},
        {"name": f"{what}_sort_index", **where, "args": {"sort_index": i}},
    ]


def _event(span: Span, places: dict[Row, Place]) -> TraceEvent:
    pid, tid = places[span.device, span.stream]
    # Whole nanoseconds: spans that touch in time touch in the viewer.
    start = round(span.start * 1e9)
    end = round(span.end * 1e9)
    return {
        "name": span.name,
        "cat": span.kind,
        "ph": "X",
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "pid": pid,
        "tid": tid,
        "args": {"bytes": span.num_bytes, "flops": span.flops},
    }


def _ours(fields: dict[str, Any]) -> Record:
    """Return the timeline that :func:`as_trace` stored with the events."""
    spans = [Span(**span) for span in fields["spans"]]
    blocks = [Block(**block) for block in fields["blocks"]]
    return Record(spans, blocks, fields["assumptions"], fields["label"])


def _load(path: str | Path) -> dict[str, Any]:
    """Return the content of a file of JSON, compressed or not."""
    stored = Path(path).read_bytes()
    try:
        if stored[:2] == b"\x1f\x8b":
            stored = gzip.decompress(stored)
        # The profiler leaves signs in names that strict JSON escapes.
        content = json.loads(stored.decode(errors="replace"), strict=False)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"not a trace: not JSON (path: {path}, error: {error})"
        ) from error
    if isinstance(content, list):  # the older form: the events alone
        content = {"traceEvents": content}
    if not isinstance(content, dict):
        raise ValueError(
            f"not a trace: neither a list nor an object (path: {path})"
        )
    return content
