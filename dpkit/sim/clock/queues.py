"""Streams, whose work is placed in the order of time.

What a host issues is not given its time at once. Three long operations on one
stream, a short one on another, and compute that serves one at a time::

    issued       a b c d
    stream 0     |== a ==|   |== b ==||== c ==|
    stream 1             | d |                     not after c

When ``a`` ends, both ``b`` and ``d`` may start. The one that has been ready
for longer goes first: ``d`` has waited since it was issued, and ``b`` is
ready only now. Work is placed as late as possible, because what is issued
later may start earlier: when the host's clock has passed its start, or when
somebody asks for its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from dpkit.sim.clock.record import Recorder
from dpkit.sim.clock.resources import Needed, earliest_fit

Stream = tuple[int, int]  # a device, and the number of a stream there


@dataclass(eq=False, slots=True)
class Work:
    """Something that devices do; a copy has names and streams of two ends.

    Without a name, a duration and resources it is a mark in a stream.
    """

    streams: Sequence[Stream]
    issued: int  # when the host had issued it, in picoseconds
    kind: str = ""  # "compute" or "copy"
    names: Sequence[str] = ()  # on each of the streams
    duration: int = 0  # picoseconds, with all that it needs to itself
    num_bytes: int = 0
    flops: int = 0
    phase: str = ""  # as that of a Span
    resources: Sequence[Needed] = ()  # what it occupies
    recorder: Recorder | None = None  # where it is noted
    end: int | None = None  # picoseconds, once it has been placed
    ready: int = 0  # when it may start, as far as that is known
    number: int = 0  # its place in the order of issue
    missing: int = 0  # how many that it waits for have not been placed
    followers: Sequence["Work"] = ()  # what waits for it


class Queues:
    """The work of all streams that has been issued."""

    def __init__(self) -> None:
        self.last: dict[Stream, Work] = {}  # on each stream
        self._count = 0
        # Work that waits for no other: when it may start, since when it has
        # been ready, and its number. The least is placed first.
        self._heads: list[tuple[int, int, int, Work]] = []

    def add(
        self,
        work: Work,
        after: Sequence[Work] = (),
        until: float = -inf,
    ) -> None:
        """Put work at the end of its streams.

        Args:
            work: What was issued.
            after: Work in other streams that it waits for as well.
            until: A mark before which nothing more is issued that could go
                first. Work that is ready by then gets its time at once.
        """
        work.ready = work.issued
        work.number = self._count
        self._count += 1
        last = self.last
        heads = self._heads
        for stream in work.streams:
            if (other := last.get(stream)) is not None:
                _follow(work, other)
        for other in after:
            _follow(work, other)
        for stream in work.streams:
            last[stream] = work
        if work.missing:
            return
        ready = work.ready
        # A mark in a stream occupies nothing, and need not be the first.
        is_first = not (heads and heads[0][0] <= ready)
        if ready <= until and (is_first or not work.resources):
            start, duration = earliest_fit(
                work.resources, ready, work.duration
            )
            if start == ready:
                self._place(work, start, duration)
                return
        heappush(heads, (ready, ready, work.number, work))

    def place_before(self, mark: float) -> None:
        """Place all work that starts until a time, which may be infinite."""
        while self._heads and self._heads[0][0] <= mark:
            self._place_first()

    def end_of(self, work: Work) -> int:
        """Return when work ends, in picoseconds."""
        while work.end is None:
            self._place_first()
        return work.end

    # Compute is busy until 11. Heads are (start, ready, number):
    #
    #     (4, 4, 3)  d    cannot start at 4: becomes (11, 4, 3)
    #     (11, 4, 3) d    goes before (11, 11, 1) b

    def _place_first(self) -> None:
        """Place the head that starts first, or learn that it is later."""
        start, ready, number, work = heappop(self._heads)
        free, duration = earliest_fit(work.resources, start, work.duration)
        if free > start:
            heappush(self._heads, (free, ready, number, work))
            return
        self._place(work, start, duration)

    def _place(self, work: Work, start: int, duration: int) -> None:
        """Make work run from ``start`` on; what follows it may be ready."""
        for resource in work.resources:
            resource.occupy(start, duration)
        work.end = end = start + duration
        for other in work.followers:
            if end > other.ready:
                other.ready = end
            other.missing -= 1
            if not other.missing:
                head = other.ready, other.ready, other.number, other
                heappush(self._heads, head)
        work.followers = ()
        if work.recorder is not None:
            _note(work, work.recorder, start, end)


def _follow(work: Work, other: Work) -> None:
    """Make work wait for another, which has been placed or not yet."""
    if other.end is None:
        other.followers = [*other.followers, work]
        work.missing += 1
    elif other.end > work.ready:
        work.ready = other.end


def _note(work: Work, recorder: Recorder, start: int, end: int) -> None:
    """Record a span for each stream that ``work`` runs on."""
    for stream, name in zip(work.streams, work.names):
        row = recorder.row_of(*stream)
        recorder.note(
            row,
            name,
            work.kind,
            start=start,
            end=end,
            num_bytes=work.num_bytes,
            flops=work.flops,
            phase=work.phase,
        )
