"""What is recorded of a run: spans of time and blocks of memory."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

SECOND = 10**12  # picoseconds, in which a clock counts
Row = tuple[str, str]  # a device and one of its streams


@dataclass(frozen=True)
class Span:
    """One thing that took time."""

    device: str  #: ``sim:0``, ``cuda:1``, ``cpu``, ``host``, ``host:1`` …
    #: "compute" (the device's default stream), "stream 1" and so on, or the
    #: name of a stream; "python" or "backward" on a host.
    stream: str
    name: str  #: such as "mm" or ``copy from sim:1``
    #: "compute", "copy", "launch" (host) or "wait" (host); of a replayed
    #: schedule "forward", "backward", "input gradients" or "weight gradients".
    kind: str
    start: float  #: seconds since the timeline began
    end: float  #: seconds since the timeline began
    num_bytes: int = 0  #: moved to and from memory, or over a link
    flops: int = 0  #: the arithmetic in it
    #: "forward" for what autograd records and "backward" for what it issues,
    #: of what computes in a trace; "" for all else.
    phase: str = ""


@dataclass
class Block:
    """Memory that one storage occupies, from its allocation to its release."""

    device: str  #: such as ``sim:0``
    num_bytes: int  #: its size
    #: "parameters", "gradients", "optimizer state", "activations" or "other".
    category: str
    #: Its place in the order of issue of all allocations and releases; -1 if
    #: it was alive when the timeline began.
    allocated: int
    #: The place of its release in that order; None while it is alive.
    freed: int | None = None


@dataclass(frozen=True)
class Use:
    """What an operation does to memory, or that the memory is freed."""

    what: str  #: "reads", "writes" or "frees"
    name: str  #: of the operation, such as "mm"; of none that frees
    #: Where it runs, as in a :class:`Span`. Of what frees: where the memory
    #: was made.
    device: str
    stream: str
    line: str  #: of the program, such as ``train.py:12``
    code: str  #: what stands in this line

    def __str__(self) -> str:
        what = f"{self.name} {self.what}".strip()
        return f"{what} on {self.device}, {self.stream}: {self.line}"


@dataclass(frozen=True)
class Race:
    """Two uses of one memory that nothing orders."""

    first: Use  #: in the order of issue
    second: Use  #: in the order of issue

    def __str__(self) -> str:
        lines = [f"{use}\n    {use.code}" for use in (self.first, self.second)]
        return "\n".join(lines)


@dataclass
class Record:
    """What happened on every device and host, as data alone."""

    spans: list[Span] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    label: str = ""
    #: What was found; None where nothing has looked for races.
    races: list[Race] | None = None

    @property
    def start(self) -> float:
        """The earliest start of a span, in seconds."""
        return min((span.start for span in self.spans), default=0.0)

    @property
    def end(self) -> float:
        """The latest end of a span, in seconds."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def makespan(self) -> float:
        """Seconds from the earliest start to the latest end."""
        return self.end - self.start


def is_host(device: str) -> bool:
    """Return whether a name is that of a host, such as "host:1"."""
    return device.split(":")[0] == "host"


def in_order(name: str) -> tuple[bool, bool, list[tuple[int, str]]]:
    """Return a key that sorts "host" before "sim:9" before "sim:10"."""
    words = name.replace(":", " ").split()
    numbered = [(int(w), "") if w.isdecimal() else (-1, w) for w in words]
    added = name not in ("compute", "python")  # those are always there
    return not is_host(name), added, numbered


def streams(spans: list[Span]) -> dict[str, dict[str, list[Span]]]:
    """Return the spans by device, then by stream, both in order."""
    rows = {(span.device, span.stream) for span in spans}
    found: dict[str, dict[str, list[Span]]] = {}
    for device, stream in sorted(rows, key=lambda r: list(map(in_order, r))):
        found.setdefault(device, {})[stream] = []
    for span in spans:
        found[span.device][span.stream].append(span)
    return found


class Recorder:
    """Collects ``spans`` from ``zero`` on, a time in picoseconds.

    ``row_of`` returns the row for a device and the number of a stream there.
    """

    def __init__(self, zero: int, row_of: Callable[[int, int], Row]) -> None:
        self.spans: list[Span] = []
        self.row_of = row_of
        self._zero = zero

    def note(
        self,
        row: Row,
        name: str,
        kind: str,
        *,
        start: int,
        end: int,
        num_bytes: int = 0,
        flops: int = 0,
        phase: str = "",
    ) -> None:
        """Add a span.

        Args:
            row: The device and the stream, as a timeline names them.
            name: What took the time.
            kind: What sort of thing it is, one of those in :class:`Span`.
            start: When it began, in picoseconds.
            end: When it ended, in picoseconds.
            num_bytes: What it moves.
            flops: The arithmetic in it.
            phase: That of a :class:`Span` that computes.
        """
        since = (start - self._zero) / SECOND
        until = (end - self._zero) / SECOND
        self.spans.append(
            Span(*row, name, kind, since, until, num_bytes, flops, phase)
        )

    def note_again(
        self, row: Row, name: str, kind: str, *, start: int, end: int
    ) -> None:
        """Add a span, or lengthen the last one if this only continues it.

        Args:
            row: The device and the stream, as a timeline names them.
            name: What took the time.
            kind: What sort of thing it is, one of those in :class:`Span`.
            start: When it began, in picoseconds.
            end: When it ended, in picoseconds.
        """
        # A loop that asks a thousand times is one span.
        last = self.spans[-1] if self.spans else None
        self.note(row, name, kind, start=start, end=end)
        if last is not None and _goes_on(last, self.spans[-1]):
            self.spans[-2:] = [replace(last, end=self.spans[-1].end)]


def _goes_on(first: Span, second: Span) -> bool:
    """Return whether a span follows one of the same name in its row."""
    same = (first.device, first.stream, first.name, first.end)
    return same == (second.device, second.stream, second.name, second.start)


def place_name(device: int | None) -> str:
    """Return the name of a device, or of the host, which None stands for."""
    return "host" if device is None else f"sim:{device}"
