"""What a rank holds of the operations that it has called.

PyTorch's engines wait for it in one of two ways. ``wait()`` makes the current
stream of the rank wait, as NCCL's does. A future, which DDP asks for in
backward, has to be done when PyTorch gets it: C++ waits for a future without
asking Python. So the rank waits for the others at once, but its stream goes
on with backward, and waits at the end of that, before DDP reads the sums.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from dpkit.ranks.meetings import Meeting
from dpkit.ranks.turns import Turns
from dpkit.sim.backward import in_backward
from dpkit.sim.sending import check_rank
from dpkit.sim.streams import SimEvent, current_stream

_Work: Any = vars(dist)["_Work"]


class SimWork(_Work):  # type: ignore[misc]
    """Operations that a rank has called, and what comes out."""

    def __init__(
        self, turns: Turns, rank: int, meetings: Sequence[Meeting], out: Any
    ) -> None:
        super().__init__()
        self._turns, self._rank = turns, rank
        self.meetings, self._out = meetings, out

    def wait(self, timeout: Any = None) -> bool:
        """Make the rank's current stream wait until they are over."""
        self._come()
        self._wait_in_stream()
        return True

    def _come(self) -> None:
        """Give other ranks their turns until all have come.

        Raises:
            RuntimeError: what they have brought could not be sent.
        """
        check_rank(self._rank)
        for meeting in self.meetings:
            self._turns.wait(self._rank, meeting)
            if meeting.error is not None:
                why = f"{type(meeting.error).__name__}: {meeting.error}"
                raise RuntimeError(
                    f"{meeting.name} has failed ({why})"
                ) from meeting.error

    def _wait_in_stream(self) -> None:
        for event in self._ends():
            event.wait(current_stream(event.device))

    def _ends(self) -> list[SimEvent]:
        """Return the events at which they are over on this rank's device."""
        found = [meeting.ends.get(self._rank) for meeting in self.meetings]
        return [event for event in found if event is not None]  # not the CPU

    def get_future(self) -> Future[Any]:
        """Return a future that is done; see the top of this module."""
        self._come()
        future = _Future()
        future.wait_in_stream = self._wait_in_stream
        future.set_result(self._out)
        engine = torch.autograd.Variable._execution_engine
        later = engine.queue_callback if in_backward() else lambda run: run()
        later(self._wait_in_stream)
        return future

    def is_completed(self) -> bool:
        """Return whether they are over, at this time of the rank's clock.

        It gives other ranks their turns until all have come. To ask the
        device then takes a moment, as :meth:`SimEvent.query` does.
        """
        self._come()
        return all(event.query() for event in self._ends())

    synchronize = block_current_stream = wait

    def result(self) -> Any:
        """Return the tensors that the operations leave."""
        return self._out


def _after_waiting(name: str) -> Callable[..., Any]:
    def run(future: Any, *args: Any) -> Any:
        future.wait_in_stream()
        return getattr(Future, name)(future, *args)

    return run


class _Future(Future[Any]):
    """A future that is done; what follows it in Python waits for the work."""

    wait_in_stream: Callable[[], None]
    then, wait, value = map(_after_waiting, ("then", "wait", "value"))
