"""Which ranks of a job are lost, when something they do together fails.

When a rank is lost, another notices it by an operation that fails or does not
end in time. The operation does not say which rank it was; and a rank that
waits for one that waits for the lost one notices nothing at all. So a thread
of each rank listens for the roll call, and answers it::

    rank 0   recv from 1 …                      "rank 0 is here"
    rank 1   recv from 2 … failed: the roll!    "rank 1 is here, and stops"
    rank 2   (killed)                           silence

A rank that is silent is lost. If none is silent, a rank that does not stop is
lost: its disk may hold it up, or an endless loop.

The job is over then, also for a rank that notices nothing, because it still
waits for the lost one: :meth:`RollCall.unnoticed` tells it.
"""

import threading
import time

from torch.distributed import Store  # type: ignore[attr-defined]

# How long the ranks have to answer, and how often to look.
ROLL_CALL_SECONDS, LOOK_SECONDS = 10.0, 0.1

# How long a rank has to notice by itself what the others have noticed.
NOTICE_SECONDS = 5.0


class RollCall(threading.Thread):
    """Listens for the roll call of a job, and answers for one rank.

    There is one roll call in a job: a rank that calls it goes no further.
    ``here`` are the ranks that have answered, ``stopped`` those that have
    called it themselves.
    """

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        # A store behind a cut cable may block its reader for ever: hence a
        # daemon, and a connection of its own.
        super().__init__(daemon=True)
        self._rank, self._ranks = rank, set(range(world_size))
        self._store = store.clone()
        self.here: set[int] = set()
        self.stopped: set[int] = set()
        self._called, self._ended = threading.Event(), threading.Event()
        self._noticed = threading.Event()

    def run(self) -> None:
        """Wait for the call, answer, and write down who else does."""
        try:
            while not self._ended.is_set():
                if self._called.wait(LOOK_SECONDS) or self._told("called"):
                    self._answer()
                    return
        except RuntimeError:
            return  # the store is gone: ranks without an answer are lost

    def lost(self) -> set[int] | None:
        """Call the roll, if no rank has; return the others that are lost.

        None stands for a store that cannot be reached.
        """
        self._noticed.set()
        self._called.set()
        self.join(ROLL_CALL_SECONDS + 1)
        if self._rank not in self.here:
            return None
        # of 0, 1, 2: 0 and 1 answer, so 2 is lost; all answer and 0 and 2
        # stop, so 1 is lost
        silent = self._ranks - self.here
        return silent or self._ranks - self.stopped - {self._rank}

    def unnoticed(self) -> set[int]:
        """Wait until others have called the roll, and for this rank to do so.

        Returns the silent ranks, if this rank has not called it even then;
        none if it has, or if it listens no more, or the store is gone.
        """
        self.join()
        called = self._rank in self.here
        if not called or self._noticed.wait(NOTICE_SECONDS):
            return set()
        return self._ranks - self.here

    def end(self) -> None:
        """Stop listening."""
        self._noticed.set()
        self._ended.set()
        self.join(1)

    def _answer(self) -> None:
        deadline = time.monotonic() + ROLL_CALL_SECONDS
        self._store.set("roll/called", "")
        self._store.set(f"roll/{self._rank} is here", "")
        while time.monotonic() < deadline and not self._ended.is_set():
            if self._called.is_set():
                self._store.set(f"roll/{self._rank} stops", "")
            for rank in self._ranks - self.here:
                if self._told(f"{rank} is here"):
                    self.here.add(rank)
            for rank in self._ranks - self.stopped:
                if self._told(f"{rank} stops"):
                    self.stopped.add(rank)
            time.sleep(LOOK_SECONDS)
            if self.stopped == self._ranks:
                time.sleep(2 * LOOK_SECONDS)  # so that the others see it too
                return

    def _told(self, what: str) -> bool:
        return bool(self._store.check([f"roll/{what}"]))
