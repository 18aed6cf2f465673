"""What is recorded of a run: spans of time and blocks of memory."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """One thing that took time.

    Attributes:
        device: Where: "sim:0", "cuda:1", "cpu", or "host" ("host:1" …).
        stream: The stream of that device: "compute" (the default stream),
            "stream 1", …; "python" or "backward" on a host.
        name: What: "mm", "copy from sim:1", …
        kind: "compute", "copy", "launch" (host) or "wait" (host); of a
            replayed schedule "forward", "backward", "input gradients" or
            "weight gradients".
        start: Seconds since the timeline began.
        end: Seconds since the timeline began.
        num_bytes: What it moved: to and from memory, or over a link.
        flops: The arithmetic in it.
    """

    device: str
    stream: str
    name: str
    kind: str
    start: float
    end: float
    num_bytes: int = 0
    flops: int = 0


@dataclass
class Block:
    """Memory that one storage occupies, from its allocation to its release.

    Attributes:
        device: "sim:0", …
        num_bytes: Its size.
        category: "parameters", "gradients", "optimizer state",
            "activations" or "other".
        allocated: Its place in the order of issue of all allocations and
            releases.
        freed: The same of its release; None while it is alive. A block that
            was alive when the timeline began has allocated -1.
    """

    device: str
    num_bytes: int
    category: str
    allocated: int
    freed: int | None = None


@dataclass
class Record:
    """What happened on every device and host, as data alone.

    Attributes:
        spans: What took time, in the order of issue.
        blocks: The memory that was allocated, in the order of issue.
        assumptions: What the times rest on, a sentence each.
        label: "simulated (v100, nvlink2)" or "measured (NVIDIA H200)".
    """

    spans: list[Span] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    label: str = ""

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
    """Say whether a name of a device is that of a host.

    Example:
        >>> from dpkit.theory.clock.record import is_host
        >>> is_host("host:1"), is_host("sim:1")
        (True, False)
    """
    return device.split(":")[0] == "host"


def in_order(name: str) -> tuple[bool, bool, list[tuple[int, str]]]:
    """Return a key that sorts devices or streams as they are read.

    Hosts come first, so do the streams that are always there, and numbers
    count as numbers.

    Example:
        >>> from dpkit.theory.clock.record import in_order
        >>> sorted(["sim:10", "sim:9", "host"], key=in_order)
        ['host', 'sim:9', 'sim:10']
        >>> sorted(["backward", "stream 2", "compute"], key=in_order)
        ['compute', 'backward', 'stream 2']
    """
    words = name.replace(":", " ").split()
    numbered = [(int(w), "") if w.isdecimal() else (-1, w) for w in words]
    first = name not in ("compute", "python")
    return not is_host(name), first, numbered


def streams(spans: list[Span]) -> dict[str, dict[str, list[Span]]]:
    """Return the spans by device, then by stream, both in order.

    Example:
        >>> from dpkit.theory.clock.record import Span, streams
        >>> a = Span("sim:0", "compute", "mm", "compute", 0.0, 1.0)
        >>> b = Span("host", "python", "mm", "launch", 0.0, 0.5)
        >>> {d: list(rows) for d, rows in streams([a, b]).items()}
        {'host': ['python'], 'sim:0': ['compute']}
    """
    found: dict[str, dict[str, list[Span]]] = {}
    for span in spans:
        rows = found.setdefault(span.device, {})
        rows.setdefault(span.stream, []).append(span)
    return {
        device: {
            s: found[device][s] for s in sorted(found[device], key=in_order)
        }
        for device in sorted(found, key=in_order)
    }
