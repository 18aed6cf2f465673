"""A row of the bench: ways of doing one thing, timed in turns."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from in_turns import Seconds, report, time_in_turns

from bench_parts.committed import Committed
from bench_parts.ratios import Ratio

Ways = Mapping[str, Callable[[], object]]
CPU_TIME = "CPU time, 1 thread"


@dataclass(frozen=True)
class Row:
    """What each way took, in each repetition, and the ratios of it."""

    title: str
    clock: str
    seconds: Seconds
    ratios: Sequence[Ratio] = ()

    def show(self, committed: Committed) -> None:
        """Print the times and the ratios; note these as the new ones."""
        title = f"{self.title} ({self.clock})"
        report(title, self.seconds)
        for ratio in self.ratios:
            name = f"{title}: {ratio.name}"
            found = ratio.spread(self.seconds)
            last = committed.last(name)
            notes = [ratio.verdict(found), f"last {last}" if last else ""]
            parts = [f"  {ratio.name}: {found}", *filter(None, notes)]
            print("; ".join(parts))
            committed.note(name, found)


def by_cpu_time(
    ways: Ways,
    count: int = 1,
    prepare: Callable[[], object] = lambda: None,
) -> Seconds:
    """Time ways in one thread; other programs' turns do not count.

    Args:
        ways: The ways, by name.
        count: How many calls are timed together.
        prepare: Is called before each way, and not timed.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return time_in_turns(
            ways, count, clock=time.process_time, prepare=prepare
        )
    finally:
        torch.set_num_threads(threads)


def wall() -> str:
    """Name the clock of :func:`in_turns.time_in_turns`."""
    return f"wall time, {torch.get_num_threads()} threads"
