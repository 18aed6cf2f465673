"""What held the memory of a device when it was out: by category and line."""

from collections import Counter
from contextlib import ExitStack
from typing import Any

import torch

from dpkit.sim import places
from dpkit.sim.changes import replaced
from dpkit.sim.devices import simulation
from dpkit.sim.memory import Allocation, Memory
from dpkit.units import show_memory

LARGE = 1 << 20  # bytes: of what is smaller, the line is not noted
MOST_LINES = 5
FEW_LINES = 1000  # that are noted


class HeldMemory:
    """Notes the line of the script that each large allocation is of.

    When memory is out, the error gets notes that say what held it.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], str] = {}
        self._most = FEW_LINES  # until what is gone is forgotten

    def begin(self, stack: ExitStack) -> None:
        """Note lines until a stack ends."""
        count: Any = Memory._count

        def noting(
            memory: Memory, storage: Any, num_bytes: int, *rest: Any
        ) -> None:
            count(memory, storage, num_bytes, *rest)
            if num_bytes >= LARGE:
                made = memory._storages[storage._cdata]
                self._note(made)

        check: Any = Memory.check_room

        def explaining(memory: Memory, num_bytes: int, device: int) -> None:
            try:
                check(memory, num_bytes, device)
            except torch.OutOfMemoryError as error:
                self._explain(error, device)
                raise

        stack.callback(replaced(Memory, "_count", noting).apply())
        stack.callback(replaced(Memory, "check_room", explaining).apply())

    def _note(self, made: Allocation) -> None:
        """Note the line of an allocation; forget those of what is gone."""
        self._lines[_key(made)] = places.here().described()
        if len(self._lines) > self._most:
            alive = set(map(_key, simulation.memory.alive()))
            gone = self._lines.keys() - alive
            for key in gone:
                del self._lines[key]
            self._most = 2 * len(self._lines) + FEW_LINES

    def _explain(self, error: torch.OutOfMemoryError, device: int) -> None:
        """Add to an error what holds the memory of a device now."""
        alive = [b for b in simulation.memory.alive() if b.device == device]
        categories: Counter[str] = Counter()
        lines: Counter[str] = Counter()
        for block in alive:
            categories[block.category] += block.num_bytes
            line = self._lines.get(_key(block), "less than 1 MiB each")
            lines[line] += block.num_bytes
        amounts = [
            f"{show_memory(count)} of {name}"
            for name, count in categories.most_common()
        ]
        if amounts:
            error.add_note("held: " + ", ".join(amounts))
        for line, count in lines.most_common(MOST_LINES):
            error.add_note(f"held since {line}: {show_memory(count)}")


def _key(block: Allocation) -> tuple[int, int]:
    return block.key, block.allocated
