"""Comparisons of a prediction with a measurement, all of one form.

``book/_data/comparisons.json`` holds them. A row is a value, predicted and
measured; a decision is an answer that hangs on several of them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path
from typing import NamedTuple

from dpkit.tables import Table, table
from dpkit.units import show_factor

KINDS = ("fitted", "unseen")
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@dataclass(frozen=True)
class Comparison:
    """What was predicted and what was measured, of one configuration.

    Attributes:
        subject: What was measured: a network, a collective, a copy.
        hardware: What it was measured on.
        configuration: The numbers that tell it from its neighbours.
        unit: The unit of both values.
        predicted: What the model says.
        measured: What the measurement says.
        kind: "fitted" where a constant of the model was fitted to it, else
            "unseen".
        work: The class of work, one of :data:`dpbook.limits.trust.WORK`.

    Example:
        >>> from dpbook.limits.comparisons import Comparison
        >>> from dpkit.units import show_factor
        >>> row = Comparison("VGG16", "P100", "batch 64", "images/s",
        ...                  180, 144, "unseen", "convolutions")
        >>> show_factor(row.factor)
        '×1.25'
    """

    subject: str
    hardware: str
    configuration: str
    unit: str
    predicted: float
    measured: float
    kind: str
    work: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(
                f"unknown kind (kind: {self.kind!r}, known: {known})"
            )

    @property
    def factor(self) -> float:
        """The predicted value, divided by the measured one."""
        return self.predicted / self.measured

    @property
    def times_off(self) -> float:
        """The larger of predicted / measured and measured / predicted.

        Twice and half of what was measured are both off by a factor of 2,
        where their errors are +100 % and −50 %.
        """
        return max(self.factor, 1 / self.factor)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Predicted and measured seconds; of a rate, those of one unit.

        100 images/s are 0.01 s for an image. A ratio has no seconds.
        """
        if self.unit in SECONDS:
            unit = SECONDS[self.unit]
            return unit * self.predicted, unit * self.measured
        if self.unit.endswith("/s"):
            return 1 / self.predicted, 1 / self.measured
        return None


@dataclass(frozen=True)
class Decision:
    """A question that several measurements answer, and predictions too.

    Attributes:
        question: What is to be decided.
        subject: Of what.
        hardware: On what.
        predicted: The answer by the predictions.
        measured: The answer by the measurements.
        work: The class of work, as of a comparison.
    """

    question: str
    subject: str
    hardware: str
    predicted: str
    measured: str
    work: str

    @property
    def right(self) -> bool:
        """Whether prediction and measurement decide alike."""
        return self.predicted == self.measured


class Comparisons(NamedTuple):
    """All that was compared."""

    rows: list[Comparison]
    decisions: list[Decision]

    def of(self, *works: str) -> "Comparisons":
        """Return the comparisons and decisions of some classes of work."""
        return Comparisons(
            [row for row in self.rows if row.work in works],
            [choice for choice in self.decisions if choice.work in works],
        )


def read(path: str | Path) -> Comparisons:
    """Return what a record holds: ``book/_data/comparisons.json``."""
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return Comparisons(
        [Comparison(*row) for row in record["rows"]],
        [Decision(*decision) for decision in record["decisions"]],
    )


def mean_factor(rows: Sequence[Comparison]) -> float:
    """Return the geometric mean of the factors by which rows are off.

    Seconds and rates of the same measurements have the same mean.

    Example:
        One is twice what was measured, one half of it, and one right:

        >>> names = "a network", "a GPU", "1 GPU", "s"
        >>> rows = [Comparison(*names, predicted, 1, "unseen", "products")
        ...         for predicted in (2, 0.5, 1)]
        >>> round(mean_factor(rows), 3)  # the third root of 2 · 2 · 1
        1.587
    """
    return exp(fsum(log(row.times_off) for row in rows) / len(rows))


def worst(rows: Iterable[Comparison]) -> Comparison:
    """Return the row that is off by the largest factor."""
    return max(rows, key=lambda row: row.times_off)


def unseen(rows: Iterable[Comparison]) -> list[Comparison]:
    """Return the rows to which nothing was fitted."""
    return [row for row in rows if row.kind == "unseen"]


def rows_table(rows: Iterable[Comparison]) -> Table:
    """Return a table of all rows."""
    return table(
        [
            {
                "what": row.subject,
                "hardware": row.hardware,
                "configuration": row.configuration,
                "unit": row.unit,
                "predicted": f"{row.predicted:.4g}",
                "measured": f"{row.measured:.4g}",
                "factor": show_factor(row.factor),
                "kind": row.kind,
            }
            for row in rows
        ]
    )


def decisions_table(decisions: Iterable[Decision]) -> Table:
    """Return a table of decisions, the wrong ones marked."""
    return table(
        [
            {
                "question": decision.question,
                "what": decision.subject,
                "hardware": decision.hardware,
                "predicted": decision.predicted,
                "measured": decision.measured,
                "right": "" if decision.right else "no",
            }
            for decision in decisions
        ]
    )
