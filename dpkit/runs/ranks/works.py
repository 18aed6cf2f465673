"""What a rank holds of the operations that it has called.

PyTorch's engines wait for it in one of two ways. ``wait()`` makes the current
stream of the rank wait, as NCCL's does. A future, which DDP asks for in
backward, has to be done when PyTorch gets it: C++ waits for a future without
asking Python. So the rank waits for the others at once, but its stream goes
on with backward. When backward has ended, DDP copies the sums of one bucket
after another to the gradients. As on CUDA, the stream waits for a bucket when
DDP first reads its sums, and for sums that nobody has read after DDP is done::

    compute  |== g3 g2 ==|== g1 g0 ==|         |g3 g2|     |g1 g0|
    bucket 0             |======= sum ========|
    bucket 1                                   |=== sum ===|
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch.futures import Future

from dpkit.runs.cuda_names.not_modelled import note
from dpkit.runs.ranks.error_words import in_words
from dpkit.runs.ranks.pending import PendingCollective
from dpkit.runs.ranks.scheduler import Scheduler
from dpkit.sim.clock import SECOND
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import simulation
from dpkit.sim.streams import SimEvent, check_rank, current_stream
from dpkit.sim.tensors import SimTensor, in_backward

Called = TypeVar("Called")  # an operation that the rank has called
_Work: Any = vars(dist)["_Work"]
PATIENCE = 600.0  # seconds; NCCL's watchdog allows as many by default


def note_time_limit() -> None:
    """Note that the time limit of a single call is not looked at."""
    note(
        "a time limit of one wait: it is not looked at, while that of the "
        "process group is"
    )


class RankWork(_Work, Generic[Called]):  # type: ignore[misc]
    """What a rank waits for: operations that it has called, and their result.

    Args:
        rank: The rank that has called them.
        pending: The operations.
        out: The tensors that they leave, as the value of a future.
    """

    def __init__(self, rank: int, pending: Sequence[Called], out: Any) -> None:
        super().__init__()
        self._rank = rank
        self.pending = pending
        self._out = out

    def wait(self, timeout: Any = None) -> bool:
        """Make the rank's current stream wait until they are over.

        The host goes on at once, when all ranks have arrived. The time limit
        is not looked at, which is noted.
        """
        if timeout:  # C++ gives 0 where a program gives none
            note_time_limit()
        self._let_all_arrive()
        self._wait_in_stream()
        return True

    synchronize = block_current_stream = wait

    @abstractmethod
    def is_completed(self) -> bool:
        """Return whether they are over, at this time of the rank's clock."""

    @abstractmethod
    def _let_all_arrive(self) -> None:
        """Wait until all ranks have arrived."""

    @abstractmethod
    def _wait_in_stream(self) -> None:
        """Make the rank's current stream wait until they are over."""

    def get_future(self) -> Future[Any]:
        """Return a future that is done; see the top of this module."""
        self._let_all_arrive()
        future = _Future()
        future.wait_in_stream = self._wait_for_sums
        future.set_result(self._out)
        engine = torch.autograd.Variable._execution_engine
        if in_backward():
            for tensor in self._simulated():
                tensor.awaited = self._wait_for_sums
            # DDP queues its last step after this. What a callback queues
            # comes behind all that is queued by then, also behind that step.
            engine.queue_callback(
                lambda: engine.queue_callback(self._wait_for_sums)
            )
        else:
            self._wait_in_stream()
        return future

    def _wait_for_sums(self) -> None:
        """Make the stream wait, and tell the tensors that it has waited."""
        for tensor in self._simulated():
            tensor.awaited = None
        self._wait_in_stream()

    def _simulated(self) -> list[SimTensor]:
        outs = tensors_in(self._out)
        return [x for x in outs if isinstance(x, SimTensor)]

    def result(self) -> Any:
        """Return the tensors that the operations leave."""
        return self._out


class SimWork(RankWork[PendingCollective]):
    """What a rank waits for that takes turns with the others.

    Args:
        scheduler: Lets other ranks run while this one waits.
        rank: The rank that has called them.
        pending: The collectives.
        out: The tensors that they leave, as the value of a future.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rank: int,
        pending: Sequence[PendingCollective],
        out: Any,
    ) -> None:
        super().__init__(rank, pending, out)
        self._scheduler = scheduler
        # When it was first asked for, without a result, in picoseconds.
        self._asked_since: int | None = None

    def _let_all_arrive(self) -> None:
        """Give other ranks their turns until all have arrived.

        Raises:
            RuntimeError: what they have contributed could not be sent.
        """
        check_rank(self._rank)
        for collective in self.pending:
            self._scheduler.wait(self._rank, collective)
            if collective.error is not None:
                why = in_words(collective.error)
                raise RuntimeError(
                    f"{collective.name} has failed ({why})"
                ) from collective.error

    def _wait_in_stream(self) -> None:
        for event in self._ends():
            event.wait(current_stream(event.device))

    def _ends(self) -> list[SimEvent]:
        """Return the events at which they are over on this rank's device."""
        ends = [c.ends.get(self._rank) for c in self.pending]
        return [event for event in ends if event is not None]  # not the CPU

    def is_completed(self) -> bool:
        """Return whether they are over, at this time of the rank's clock.

        It gives other ranks their turns first, until none of them can go on:
        those that have not arrived by then may wait for this rank. To ask
        takes a moment, as :meth:`SimEvent.query` does.
        """
        if not self._have_all_arrived():
            simulation.clock.poll(self._rank)
            return False
        self._let_all_arrive()
        return all(event.query() for event in self._ends())

    def _have_all_arrived(self) -> bool:
        """Give others their turns, and return whether all have arrived.

        A rank that has asked for ten minutes without a result waits, and
        fails if no rank can go on.
        """
        check_rank(self._rank)
        if all(collective.is_over for collective in self.pending):
            return True
        self._scheduler.let_others(self._rank)
        now = simulation.clock.mark(self._rank)
        if self._asked_since is None:
            self._asked_since = now
        is_over = all(collective.is_over for collective in self.pending)
        return is_over or now - self._asked_since > PATIENCE * SECOND


def _after_waiting(name: str) -> Callable[..., Any]:
    def run(future: Any, *args: Any) -> Any:
        future.wait_in_stream()
        return getattr(Future, name)(future, *args)

    return run


class _Future(Future[Any]):
    """A future that is done; what follows it in Python waits for the work."""

    wait_in_stream: Callable[[], None]
    then = _after_waiting("then")
    wait = _after_waiting("wait")
    value = _after_waiting("value")
