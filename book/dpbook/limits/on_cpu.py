"""Predicted training steps of a calibration, as comparisons."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from dpbook.limits.comparisons import Comparison, Comparisons, Decision
from dpkit.calibration import Prediction

ON_CPU = "networks on a CPU"  # the class of work


def compared(rows: Sequence[Prediction], hardware: str) -> Comparisons:
    """Return these steps as comparisons, of networks on a CPU.

    The decision of a network is the batch size of most examples a second.
    """
    comparisons = [
        Comparison(
            subject=row.model,
            hardware=hardware,
            configuration=f"batch {row.batch_size}",
            unit="s",
            predicted=row.predicted_seconds,
            measured=row.measured_seconds,
            kind="unseen",
            work=ON_CPU,
        )
        for row in rows
    ]
    question = "which batch gives the most examples a second"
    decisions = [
        Decision(question, model, hardware, *_best(group), ON_CPU)
        for model, group in groupby(rows, lambda row: row.model)
    ]
    return Comparisons(comparisons, decisions)


def _best(group: Iterable[Prediction]) -> tuple[str, str]:
    """Return the best batch size, predicted and measured."""
    rows = list(group)
    ways = (
        max(rows, key=lambda row: row.batch_size / row.predicted_seconds),
        max(rows, key=lambda row: row.batch_size / row.measured_seconds),
    )
    predicted, measured = (str(row.batch_size) for row in ways)
    return predicted, measured
