"""What was published of runs of scripts, and what the report forecasts."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from recorders.public.table import HERE, PublicScript

PUBLISHED = HERE / "forecasts.toml"
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
GIB = {"KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}
LONGEST = re.compile(
    r"^What GPU 0 spends most time on.*\n.*\n((?: +\S.*\n)+)", re.MULTILINE
)


@dataclass
class Published:
    """A step that somebody timed.

    Its time is given in one of three ways: ``seconds``; ``per_second`` and
    ``work``, both of a GPU; ``hours`` and ``steps``, of a whole training.
    """

    source: str
    date: str
    hardware: str
    torch: str
    batch: str  # of a GPU
    precision: str
    compiled: bool
    attention: str  # "fused", "of products" or "none"
    seconds: float = 0.0
    per_second: float = 0.0
    work: float = 0.0
    hours: float = 0.0
    steps: int = 0
    peak: float | None = None  # GiB on a GPU
    peak_of: str = ""  # "tensors", or "reserved" by the caching allocator

    def step_seconds(self) -> float:
        """Return the seconds of a step of the optimizer."""
        if self.seconds:
            return self.seconds
        if self.per_second:
            return self.work / self.per_second
        return 3600 * self.hours / self.steps


@dataclass
class Forecast:
    """A script, and what was published of it."""

    script: PublicScript
    published: Published


def read_forecasts(path: Path = PUBLISHED) -> list[Forecast]:
    """Return the published runs of a table.

    Raises:
        TypeError: One has a field that is not known, or lacks one.
    """
    read: list[Forecast] = []
    for row in tomllib.loads(path.read_text())["run"]:
        published = Published(**row.pop("published"))
        read.append(Forecast(PublicScript(**row), published))
    return read


def seconds_of(said: str) -> float:
    """Return the seconds that the report gives for a step.

    Example:
        >>> seconds_of("12.5 ms (median; from 12 ms to 13 ms)")
        0.0125
    """
    number, unit = said.split()[:2]
    return float(number) * UNITS[unit]


def gib_of(said: str) -> float:
    """Return what the report gives for memory, in GiB.

    Example:
        >>> gib_of("512 MiB")
        0.5
    """
    number, unit = said.split()
    return float(number) * GIB[unit]


def longest(report: str) -> list[list[str]]:
    """Return the operations that take longest, with their shares."""
    found = LONGEST.search(report)
    lines = found[1].splitlines() if found else []
    rows = [line.rsplit(maxsplit=2) for line in lines]
    return [[operation.strip(), share] for operation, _, share in rows]
