"""A part of a report: its title, what it rests on, lines and a table."""

from typing import NamedTuple

from dpkit.theory.tables import Table


class Section(NamedTuple):
    """A part of a report."""

    title: str
    rests_on: str  # "counted", "modelled" or nothing
    lines: list[str]
    table: Table | None = None

    def __str__(self) -> str:
        head = (
            f"{self.title} ({self.rests_on})" if self.rests_on else self.title
        )
        parts = [head, *(f"  {line}" for line in self.lines)]
        if self.table is not None:
            parts += [f"  {line}" for line in str(self.table).splitlines()]
        return "\n".join(parts)
