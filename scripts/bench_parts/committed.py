"""The ratios that were measured last, by the name of the CPU.

Ratios of other CPUs are kept, but not compared with: an interpreter and a
cache that are faster change both sides of a ratio, each in its own way.
"""

import json
from pathlib import Path
from typing import Any

from bench_parts.ratios import Spread

FILE = Path(__file__).parent / "ratios.json"


class Committed:
    """The ratios of one machine: those in the file, and new ones.

    The file holds, for each machine, what it was measured on, and for each
    ratio the median, the lowest and the highest.
    """

    def __init__(self, machine: str, file: Path = FILE) -> None:
        self._file = file
        self._machine = machine
        self._new: dict[str, Spread] = {}
        known = self._read().get(machine, {})
        self._last = {
            name: Spread(*found)
            for name, found in known.get("ratios", {}).items()
        }

    def last(self, name: str) -> Spread | None:
        """Return a ratio as it was measured last; None: never."""
        return self._last.get(name)

    def note(self, name: str, found: Spread) -> None:
        """Keep a new ratio, to be written."""
        self._new[name] = found

    def write(self, **measured: str) -> None:
        """Put the new ratios into the file, with what was measured when.

        Ratios that were not measured this time stay.
        """
        ratios = {
            name: [round(x, 3) for x in found]
            for name, found in (self._last | self._new).items()
        }
        records = self._read() | {self._machine: measured | {"ratios": ratios}}
        text = json.dumps(records, indent=1, ensure_ascii=False)
        self._file.write_text(text + "\n")

    def _read(self) -> dict[str, Any]:
        if not self._file.exists():
            return {}
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found
