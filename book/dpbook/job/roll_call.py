"""Which ranks of a job are lost, when something they do together fails.

An operation that fails or takes too long does not say which rank is lost. A
rank that waits for one that waits for the lost one notices nothing at all. So
a thread of each rank listens for the roll call, and answers it::

    rank 0   recv from 1 …                      "rank 0 is here"
    rank 1   recv from 2 … failed: the roll!    "rank 1 is here, and stops"
    rank 2   (killed)                           silence

A rank that is silent is lost. If none is silent, a rank that does not stop is
lost: a slow disk or an endless loop may be the reason.
"""

import threading
import time

from torch.distributed import Store  # type: ignore[attr-defined]

# How long the ranks have to answer, and how often to look. What ends a wait is
# the number of looks, so that no rank is lost while the machine stands still.
ROLL_CALL_SECONDS = 10.0
LOOK_SECONDS = 0.1
# How long a rank has to notice by itself what the others have noticed.
NOTICE_SECONDS = 5.0


def looks(seconds: float) -> range:
    """Return one number for each look that fits into some seconds."""
    return range(round(seconds / LOOK_SECONDS))


class RollCall(threading.Thread):
    """Listens for the one roll call of a job, and answers for one rank."""

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        # A store behind a cut cable may block its reader forever: so this is
        # a daemon, with a connection that nobody else uses.
        super().__init__(daemon=True)
        self._rank = rank
        self._ranks = set(range(world_size))
        self._store = store.clone()
        self._seconds = ROLL_CALL_SECONDS
        self.here: set[int] = set()  # the ranks that have answered
        self.stopped: set[int] = set()  # those that have called the roll
        self._called = threading.Event()
        self._ended = threading.Event()
        self._noticed = threading.Event()

    def run(self) -> None:
        """Wait for the call, answer, and note the answers of the others."""
        try:
            while not self._ended.is_set():
                if self._called.wait(LOOK_SECONDS) or self._is_set("called"):
                    self._answer()
                    return
        except RuntimeError:
            return  # the store is gone: ranks without an answer are lost

    def lost(self) -> set[int] | None:
        """Call the roll; return the lost ranks, or None without a store."""
        self._noticed.set()
        self._called.set()
        # Looks at a slow store take longer, and behind a cut cable forever.
        self.join(2 * self._seconds + 1)
        if self._rank not in self.here:
            return None
        # ranks 0, 1, 2: if 0 and 1 answer, 2 is lost; if all answer, and 0
        # and 2 stop, 1 is lost
        silent = self._ranks - self.here
        return silent or self._ranks - self.stopped - {self._rank}

    def unnoticed(self) -> set[int]:
        """Wait for a roll call; return the ranks that did not answer.

        Return none if this rank calls the roll itself within some seconds.
        """
        self.join()
        if self._rank not in self.here:
            return set()
        for _ in looks(NOTICE_SECONDS):
            if self._noticed.wait(LOOK_SECONDS):
                return set()
        return self._ranks - self.here

    def end(self) -> None:
        """Stop listening."""
        self._noticed.set()
        self._ended.set()
        self.join(1)

    def _answer(self) -> None:
        self._store.set("roll/called", "")
        self._store.set(f"roll/{self._rank} is here", "")
        for _ in looks(self._seconds):
            if self._ended.is_set():
                return
            if self._called.is_set():
                self._store.set(f"roll/{self._rank} stops", "")
            for rank in self._ranks:
                # A rank stops after it has answered. In the other order, one
                # that does both between the two looks would seem silent.
                if self._is_set(f"{rank} stops"):
                    self.stopped.add(rank)
                if self._is_set(f"{rank} is here"):
                    self.here.add(rank)
            time.sleep(LOOK_SECONDS)
            if self.stopped == self._ranks:
                time.sleep(2 * LOOK_SECONDS)  # so that the others see it too
                return

    def _is_set(self, key: str) -> bool:
        return bool(self._store.check([f"roll/{key}"]))
