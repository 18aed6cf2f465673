"""How long each device computed, copied and stood idle."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from dpkit.sim.clock.record import Record, Row, Span, is_host, streams
from dpkit.tables import Table, table
from dpkit.units import show_bytes, show_seconds, time_unit

EXPOSED = "exposed: copying while the device does not compute"


@dataclass(frozen=True)
class DeviceTimes:
    """Where the time of one device went, in seconds.

    ``busy``, ``exposed`` and ``idle`` add up to the makespan.
    """

    busy: float  # it computed, on one stream or on several
    exposed: float  # it copied and did not compute
    idle: float  # it did neither
    copying: float  # it copied, whether it also computed or not
    bytes_sent: int  # by its copies to elsewhere
    bytes_received: int


@dataclass(frozen=True)
class HostTimes:
    """Where the time of one host went; the three add up to the makespan."""

    busy: float  # it issued work, and waited for nothing
    waiting: float  # it waited for a device
    idle: float  # it did neither


@dataclass(frozen=True, repr=False)
class Summary:
    """The numbers of a timeline, which show themselves as tables."""

    label: str  # of the timeline
    num_spans: int
    makespan: float  # seconds from the earliest start to the latest end
    devices: dict[str, DeviceTimes]
    hosts: dict[str, HostTimes]
    streams: dict[Row, float]  # seconds in which something ran, not waited
    assumptions: list[str]  # what the times rest on

    def __repr__(self) -> str:
        parts = [self._head(), *(str(t) for t in self._tables())]
        if any(device.copying for device in self.devices.values()):
            parts[1] += f"\n{EXPOSED}"
        if self.assumptions:
            lines = [f"- {assumption}" for assumption in self.assumptions]
            parts.append("\n".join(["assumptions", *lines]))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        tables = [table._repr_html_() for table in self._tables()]
        if any(device.copying for device in self.devices.values()):
            tables[0] += f"\n<p>{EXPOSED}</p>"
        parts = [f"<p>{escape(self._head(), quote=False)}</p>", *tables]
        if self.assumptions:
            lines = [escape(line, quote=False) for line in self.assumptions]
            items = [f"<li>{line}</li>" for line in lines]
            parts += ["<p>assumptions</p>", "<ul>", *items, "</ul>"]
        return "\n".join(parts)

    def _head(self) -> str:
        label = f"{self.label}: " if self.label else ""
        spans = f"{self.num_spans} span{'s' if self.num_spans != 1 else ''}"
        head = f"{label}{spans}, makespan {show_seconds(self.makespan)}"
        _, unit = time_unit(self.makespan)
        return f"{head} (times in {unit})" if self.num_spans else head

    def _tables(self) -> list[Table]:
        """Return the tables of devices, hosts and streams that have rows."""
        unit, _ = time_unit(self.makespan)
        digits = self._digits()

        def show(seconds: float) -> str:
            return f"{seconds / unit:.{digits}f}"

        devices = [
            {
                "device": name,
                "computing": show(device.busy),
                "exposed": show(device.exposed),
                "idle": show(device.idle),
                "copying": show(device.copying),
                "sent": show_bytes(device.bytes_sent),
                "received": show_bytes(device.bytes_received),
            }
            for name, device in self.devices.items()
        ]
        hosts = [
            {
                "host": name,
                "launching": show(host.busy),
                "waiting": show(host.waiting),
                "idle": show(host.idle),
            }
            for name, host in self.hosts.items()
        ]
        by_stream = [
            {
                "stream": " ".join(name),
                "busy": show(busy),
                "idle": show(max(0.0, self.makespan - busy)),
            }
            for name, busy in self.streams.items()
        ]
        if len(by_stream) <= len(devices) + len(hosts):
            by_stream = []  # one for each device and host: no news
        return [table(rows) for rows in (devices, hosts, by_stream) if rows]

    def _digits(self) -> int:
        """Return how many digits after the point show four of the makespan."""
        # 1.235 s has three digits after the point, 12.35 ms two.
        unit = time_unit(self.makespan)[0]
        whole = math.floor(math.log10(max(self.makespan / unit, 1.0)))
        return max(0, 3 - whole)


def summarize(record: Record) -> Summary:
    """Add up where the time went; a device's overlapping spans count once."""
    makespan = record.makespan
    devices: dict[str, DeviceTimes] = {}
    hosts: dict[str, HostTimes] = {}
    by_stream: dict[Row, float] = {}
    for device, rows in streams(record.spans).items():
        spans = [span for row in rows.values() for span in row]
        if is_host(device):
            hosts[device] = _host(spans, makespan)
        else:
            devices[device] = _device(spans, makespan)
        for stream, row in rows.items():
            running = (span for span in row if span.kind != "wait")
            by_stream[device, stream] = covered(running)
    return Summary(
        label=record.label,
        num_spans=len(record.spans),
        makespan=makespan,
        devices=devices,
        hosts=hosts,
        streams=by_stream,
        assumptions=list(record.assumptions),
    )


def _device(spans: list[Span], makespan: float) -> DeviceTimes:
    copies = [s for s in spans if s.kind == "copy"]
    computing = [s for s in spans if s.kind not in ("copy", "wait")]
    busy = covered(computing)
    either = covered(computing + copies)
    return DeviceTimes(
        busy=busy,
        exposed=max(0.0, either - busy),
        idle=max(0.0, makespan - either),
        copying=covered(copies),
        # A collective of a library is both: it has the name of neither.
        bytes_sent=_moved(copies, but="copy from "),
        bytes_received=_moved(copies, but="copy to "),
    )


def _host(spans: list[Span], makespan: float) -> HostTimes:
    # A call that waits lies within the operation that made it: what is
    # left of the operation is the launching.
    waiting = covered(s for s in spans if s.kind == "wait")
    either = covered(spans)
    return HostTimes(
        busy=max(0.0, either - waiting),
        waiting=waiting,
        idle=max(0.0, makespan - either),
    )


def _moved(copies: Iterable[Span], but: str) -> int:
    return sum(s.num_bytes for s in copies if not s.name.startswith(but))


def covered(spans: Iterable[Span]) -> float:
    """Return the seconds in which at least one of the spans runs."""
    # Spans 0–2, 1–3 and 5–6: 2, then 1 more, then 1, together 4.
    total = 0.0
    reached = -math.inf
    for start, end in sorted((s.start, s.end) for s in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
