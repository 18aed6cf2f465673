"""Which ranks of a job are alive, when something they do together fails.

When a rank is lost, another notices it by an operation that fails or does not
end in time. Which rank it was, the operation does not say; and a rank that
waits for one that waits for the lost one notices nothing at all. So a thread
of each rank listens for the roll call, and answers it::

    rank 0   recv from 1 …                      "rank 0 is here"
    rank 1   recv from 2 … failed: the roll!    "rank 1 is here"
    rank 2   (killed)                           silence
"""

from __future__ import annotations

import threading
import time

from torch.distributed import Store  # type: ignore[attr-defined]

# How long the ranks have to answer, and how often to look.
ROLL_CALL_SECONDS, LOOK_SECONDS = 10.0, 0.1


class RollCall(threading.Thread):
    """Listens for the roll call of a job, and answers for one rank.

    Args:
        rank: This one.
        world_size: The number of ranks.
        store: What all ranks can read and write.
    """

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        # A store behind a cut cable may hold its reader for ever: hence a
        # daemon, and a connection of its own.
        super().__init__(daemon=True)
        self._rank, self._world_size = rank, world_size
        self._store = store.clone()
        self._present: set[int] = set()
        self._called, self._ended = threading.Event(), threading.Event()

    def run(self) -> None:
        """Wait for the call, answer, and write down who else does."""
        try:
            while not self._ended.is_set():
                if self._called.wait(LOOK_SECONDS) or self._check("called"):
                    self._answer()
                    return
        except RuntimeError:
            return  # the store is gone, and who has not answered is lost

    def present(self) -> set[int]:
        """Call the roll, if nobody has; return the ranks that answer.

        This rank is missing where not even the store can be reached.
        """
        self._called.set()
        self.join(ROLL_CALL_SECONDS + 1)
        return set(self._present)

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()
        self.join(1)

    def _answer(self) -> None:
        deadline = time.monotonic() + ROLL_CALL_SECONDS
        self._store.set("roll/called", "")
        self._store.set(f"roll/{self._rank}", "")
        while time.monotonic() < deadline and not self._ended.is_set():
            for rank in set(range(self._world_size)) - self._present:
                if self._check(rank):
                    self._present.add(rank)
            if len(self._present) == self._world_size:
                return
            time.sleep(LOOK_SECONDS)

    def _check(self, name: int | str) -> bool:
        return bool(self._store.check([f"roll/{name}"]))
