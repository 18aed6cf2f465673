"""Which question each class of work may be asked.

A class of work may be asked "how much" if its unseen rows miss by a fifth at
most, on average. It may be asked "which" if at least four of five decisions
came out right. A test holds ``WORK`` to the record.
"""

from typing import NamedTuple

from dpkit.lab.limits.comparisons import (
    Comparisons,
    mean_miss,
    unseen,
    worst,
)
from dpkit.theory.tables import Table

MOST_MISS = 0.2  # of a class that may be asked how much
LEAST_RIGHT = 0.8  # of the decisions, of a class that may be asked which


class Questions(NamedTuple):
    """What a class of work may be asked, and in words."""

    how_much: bool
    which: bool
    words: str


WORK: dict[str, Questions] = {}


def questions(found: Comparisons) -> tuple[bool, bool]:
    """Return whether a class of work may be asked how much, and which."""
    rows, decisions = unseen(found.rows), found.decisions
    right = sum(decision.right for decision in decisions)
    return (
        bool(rows) and mean_miss(rows) <= MOST_MISS,
        bool(decisions) and right >= LEAST_RIGHT * len(decisions),
    )


def summary(found: Comparisons) -> Table:
    """Return a line for each class of work: its misses, and its decisions."""
    head = "work | rows | unseen | mean miss:.0% | worst:+.0% | right"
    table = Table(head)
    for work in WORK:
        rows, decisions = found.of(work)
        left = unseen(rows)
        right = sum(decision.right for decision in decisions)
        words = f"{right} of {len(decisions)}" if decisions else ""
        values = mean_miss(left), worst(left).error
        table.add(work, len(rows), len(left), *values, words)
    return table


def worst_table(found: Comparisons) -> Table:
    """Return the row of each class of work that is off most."""
    head = "work | what | hardware | configuration | error:+.0%"
    table = Table(head)
    for work in WORK:
        row = worst(unseen(found.of(work).rows))
        what = row.subject, row.hardware, row.configuration
        table.add(work, *what, row.error)
    return table


def words_table() -> Table:
    """Return what each class of work may be asked."""
    table = Table("work | how much? | which? | so")
    for work, (how_much, which, words) in WORK.items():
        answers = ("yes" if yes else "no" for yes in (how_much, which))
        table.add(work, *answers, words)
    return table
