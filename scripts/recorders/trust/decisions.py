"""Which of several was the best, by predictions and by measurements."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from dpbook.limits.comparisons import Comparison, Decision

ENOUGH = 0.9  # of k times one, or of the largest rate
SAVED = 0.75  # what one large message takes, of what several small ones do
RATES = (
    *("images/s", "samples/s", "sequences/s", "tokens/s", "GB/s"),
    *("times one", "times the first"),
)


def first_of(
    rows: Sequence[Comparison], named: Callable[[Comparison], str]
) -> tuple[str, str]:
    """Return which of the rows is the fastest: predicted, and measured."""
    best = max if rows[0].unit in RATES else min
    return (
        named(best(rows, key=lambda row: row.predicted)),
        named(best(rows, key=lambda row: row.measured)),
    )


def neighbours(
    rows: Iterable[Comparison],
    question: str,
    named: Callable[[Comparison], str],
    work: str | None = None,
) -> Iterator[Decision]:
    """Ask of rows that come next to each other which is the faster.

    "Next to each other" as they were measured: of 5, 9 and 7 seconds these
    are 5 and 7, and 7 and 9. The answers are the hardest to get right.

    Args:
        rows: Comparisons of what could be chosen.
        question: What is asked, such as "which GPU".
        named: From a comparison to the name of what it is about.
        work: The class of work. None: the comparisons'.
    """
    ordered = sorted(rows, key=lambda row: row.measured)
    for pair in pairwise(ordered):
        if pair[0].measured < pair[1].measured:
            first, last = pair
            what = f"{named(first)} or {named(last)}"
            row = replace(first, subject=what)
            yield _decision(row, question, first_of(pair, named), work)


def how_many(rows: Sequence[Comparison]) -> Decision:
    """Ask how many GPUs give 90 % of so many times what one gives.

    ``rows`` are those of 2, 4 and 8 GPUs, or some of them.
    """

    def most(shares: Sequence[float]) -> str:
        count = f"fewer than {gpus[0]}"
        for number, share in zip(gpus, shares):
            if share < ENOUGH:
                break
            count = number
        return count

    gpus = [row.configuration.split()[0] for row in rows]
    answers = [
        most([row.predicted for row in rows]),
        most([row.measured for row in rows]),
    ]
    return _decision(
        rows[0], f"how many GPUs give {100 * ENOUGH:.0f} %", answers
    )


def smallest(rows: Sequence[Comparison]) -> Decision:
    """Ask which batch is the smallest that gives 90 % of the largest rate.

    ``rows`` are rates by the size of a batch, of small ones first.
    """

    def first(rates: Sequence[float]) -> str:
        enough = ENOUGH * max(rates)
        pairs = zip(rows, rates, strict=True)
        return next(row.configuration for row, rate in pairs if rate >= enough)

    answers = [
        first([row.predicted for row in rows]),
        first([row.measured for row in rows]),
    ]
    question = f"which batch gives {100 * ENOUGH:.0f} % of the largest rate"
    return _decision(rows[0], question, answers)


def is_more(row: Comparison, question: str) -> Decision:
    """Ask whether a ratio is above one."""
    answers = ("yes" if x > 1 else "no" for x in (row.predicted, row.measured))
    return _decision(row, question, (next(answers), next(answers)))


def joins(rows: Sequence[Comparison]) -> Iterator[Decision]:
    """Ask whether it pays to join messages into one.

    It does if the large one takes less than three quarters of what the small
    ones take, one after another. ``rows`` are those of one table.
    """
    sizes = {_num_bytes(row): row for row in rows}
    for small, large in pairwise(sorted(sizes)):
        if small in (2**16, 2**18, 2**20, 2**22, 2**24):
            count = large / small
            pair = sizes[small], sizes[large]
            pays = [
                pair[1].predicted < SAVED * count * pair[0].predicted,
                pair[1].measured < SAVED * count * pair[0].measured,
            ]
            answers = ["yes" if x else "no" for x in pays]
            what = f"{count:.0f} allreduces of {small:,} bytes"
            row = replace(pair[0], subject=what)
            yield _decision(row, "does it pay to join them", answers)


def by(
    rows: Iterable[Comparison], key: Callable[[Comparison], str]
) -> list[list[Comparison]]:
    """Return rows in groups of equal keys."""
    ordered = sorted(rows, key=key)
    return [list(group) for _, group in groupby(ordered, key)]


def _num_bytes(row: Comparison) -> int:
    return int(row.configuration.split()[0].replace(",", ""))


def _decision(
    row: Comparison,
    question: str,
    answers: Sequence[str],
    work: str | None = None,
) -> Decision:
    predicted, measured = answers
    who = row.subject, row.hardware
    return Decision(question, *who, predicted, measured, work or row.work)
