"""What a clock writes down: the spans of hosts and streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpkit.theory.clock.record import Span
from dpkit.theory.clock.resources import Resource

SECOND = 10**12  # picoseconds


@dataclass
class Work:
    """Something that devices do.

    Attributes:
        kind: "compute" or "copy".
        names: What each of the streams calls it.
        duration: How long it takes, once it starts, in picoseconds.
        num_bytes: What it moves.
        flops: The arithmetic in it.
        resources: What it needs to itself while it runs.
        streams: (device, stream) of each end; one, but two for a copy
            between devices.
        issued: When the host had issued it, in picoseconds.
    """

    kind: str
    names: Sequence[str]
    duration: int
    num_bytes: int
    flops: int
    resources: Sequence[Resource]
    streams: Sequence[tuple[int, int]]
    issued: int = 0


class Recorder:
    """The spans since a recording began.

    Args:
        zero: When it began, in picoseconds: the zero of its seconds.

    Attributes:
        spans: What took time.
    """

    def __init__(self, zero: int) -> None:
        self.spans: list[Span] = []
        self._zero = zero

    def note_work(self, work: Work, start: int) -> None:
        """Add a span for each stream that ``work`` runs on."""
        for (device, stream), name in zip(work.streams, work.names):
            self._add(
                f"sim:{device}",
                f"stream {stream}" if stream else "compute",
                name,
                work.kind,
                (start, start + work.duration),
                work.num_bytes,
                work.flops,
            )

    def note_host(
        self,
        row: tuple[str, str],
        name: str,
        kind: str,
        start: int,
        end: int,
    ) -> None:
        """Add a span for what a host does, in a row of the timeline."""
        if end > start:
            self._add(*row, name, kind, (start, end))

    def _add(
        self,
        device: str,
        stream: str,
        name: str,
        kind: str,
        time: tuple[int, int],
        num_bytes: int = 0,
        flops: int = 0,
    ) -> None:
        start, end = ((mark - self._zero) / SECOND for mark in time)
        self.spans.append(
            Span(device, stream, name, kind, start, end, num_bytes, flops)
        )


def place_name(device: int | None) -> str:
    """Return the name of a device, or of the host, which None stands for."""
    return "host" if device is None else f"sim:{device}"
