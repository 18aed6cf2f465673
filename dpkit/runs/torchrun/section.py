"""A part of a report: its title, what it rests on, lines and a table."""

from typing import NamedTuple

from dpkit.tables import Table
from dpkit.units import show_bytes


class Section(NamedTuple):
    """A part of a report."""

    title: str
    rests_on: str  # "counted", "modelled" or nothing
    lines: list[str]
    table: Table | None = None
    mark: str = ""  # before each line

    def __str__(self) -> str:
        head = (
            f"{self.title} ({self.rests_on})" if self.rests_on else self.title
        )
        mark = f"{self.mark} " if self.mark else ""
        parts = [head, *(f"  {mark}{line}" for line in self.lines)]
        if self.table is not None:
            parts += [f"  {line}" for line in str(self.table).splitlines()]
        return "\n".join(parts)


def count_columns(
    times: int, num_bytes: int, steps: int
) -> dict[str, str | float]:
    """Return the columns that count messages, in all and for a step.

    Args:
        times: How many there are.
        num_bytes: Of all of them.
        steps: Those of the optimizer; 0: nothing is counted for a step.
    """
    columns: dict[str, str | float] = {
        "times": times,
        "bytes": show_bytes(num_bytes),
    }
    if steps:
        columns["times a step"] = times / steps
        columns["bytes a step"] = show_bytes(num_bytes / steps)
    return columns
