"""Uses of one memory that nothing orders, in a rank: ``--races``.

The checker of ``dpkit.sim.races`` sees what a rank issues. A collective is
issued here to a stream of its group, from where the current stream is, and
``wait`` makes the current stream wait for it, as with NCCL::

    compute    write x    allreduce      read x     a race
    stream of the group       adds x
    compute                         wait    read x  after the sum

No other rank has this memory, so what others do orders nothing here.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from dpkit.runs.forked.group import (
    Calls,
    ForkedGroup,
    ForkedWork,
    OpenCall,
    taken_and_given,
)
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced
from dpkit.sim.clock import DEFAULT, Race, Row, Stream
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import simulation
from dpkit.sim.races import Races


class NothingOrders(Watcher):
    """Uses of one memory that nothing orders, of which one writes."""

    looks_for = "uses of one memory that nothing orders"

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        clock: Any = simulation.clock
        one_host = SimpleNamespace(times=[0], of=lambda device: 0)
        seen: Any = SimpleNamespace(
            hosts=SimpleNamespace(python=one_host),
            current=clock.current,
            cluster=clock.cluster,
            row_of=self._row_of,
        )
        self._current: list[int] = clock.current
        self._races = Races(seen)
        # By the name of a group, or of a pair in it.
        self._channels: dict[str, int] = {}

    def begin(self, stack: ExitStack) -> None:
        """Look at what is issued, at collectives, and at what waits."""
        simulation.races = self._races
        stack.callback(setattr, simulation, "races", None)
        stack.enter_context(self._races.watching_host())
        make = Calls.make
        wait = ForkedWork._wait_in_stream
        is_completed = ForkedWork.is_completed

        def made(
            calls: Calls, group: ForkedGroup, call: CollectiveCall, xs: Any
        ) -> OpenCall:
            opened = make(calls, group, call, xs)
            self._ran(group, call, xs, opened)
            return opened

        def waited(work: ForkedWork) -> None:
            wait(work)
            self._wait(work)

        def asked(work: ForkedWork) -> bool:
            is_over = is_completed(work)
            if is_over:
                self._wait(work)
            return is_over

        for owner, name, value in (
            (Calls, "make", made),
            (ForkedWork, "_wait_in_stream", waited),
            (ForkedWork, "is_completed", asked),
        ):
            stack.callback(replaced(owner, name, value).apply())

    def end(self) -> None:
        """Note the races as findings, each once."""
        self._races.flush()
        self.findings = sentences_of(self._races.found) | self.findings

    def _ran(
        self,
        group: ForkedGroup,
        call: CollectiveCall,
        tensors: Any,
        opened: OpenCall,
    ) -> None:
        """Note a collective, in a stream of its group."""
        channel = f"group {group.group_name} {call.end.pair}".strip()
        number = -1 - self._channels.setdefault(channel, len(self._channels))
        begin = _Event()
        self._races.record(begin, self._stream())
        side = self.rank, number
        self._races.wait(side, begin)
        taken, given = taken_and_given(call, tensors)
        written = {id(x) for x in tensors_in(taken)}
        reads = [x for x in tensors_in(given) if id(x) not in written]
        before = self._current[self.rank]
        list.__setitem__(self._current, self.rank, number)
        try:
            self._races.used(
                call.kind,
                self.rank,
                reads=filter(_is_simulated, reads),
                writes=filter(_is_simulated, tensors_in(taken)),
            )
        finally:
            list.__setitem__(self._current, self.rank, before)
        self._races.record(opened, side)
        for x in filter(_is_simulated, tensors_in(tensors)):
            self._races.record_stream(x, side)

    def _wait(self, work: ForkedWork) -> None:
        """Note that the current stream waits for collectives."""
        for opened in work.pending:
            self._races.wait(self._stream(), opened)

    def _row_of(self, device: int, stream: int) -> Row:
        """Return what the findings call a stream of a device."""
        name = "compute" if stream == DEFAULT else f"stream {stream}"
        if stream < 0:
            name = list(self._channels)[-1 - stream]
        return f"sim:{device}", name

    def _stream(self) -> Stream:
        return self.rank, self._current[self.rank]


def sentences_of(races: Iterable[Race]) -> dict[str, str]:
    """Return a sentence for each race -> the line of its second use."""
    found: dict[str, str] = {}
    for race in races:
        first, second = race.first, race.second
        before = first.line.partition(" (")[0]  # not the line of dpkit
        found.setdefault(
            "nothing orders two uses of one memory: "
            f"{first.name} {first.what} ({first.stream}, {before}), "
            f"{second.name} {second.what} ({second.stream})",
            second.line.partition(" (")[0],
        )
    return found


class _Event:
    """A place in a stream."""


def _is_simulated(tensor: Any) -> bool:
    return bool(tensor.device.type == "sim")
