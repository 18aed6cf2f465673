"""Several ranks against one that has the same global batch."""

from collections.abc import Sequence
from functools import partial

from dpkit.runs.check import causes
from dpkit.runs.check.comparison import (
    Look,
    first_lines,
    joined_step,
    of_all,
    other_changes,
    other_moves,
    other_rates,
)
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import (
    SAME_WITHIN,
    Tolerance,
    common_factor,
    differing,
    more_than_rounding,
    tolerance,
)


def compare_first(one: Kept, several: Sequence[Kept]) -> list[str]:
    """Return a line if one rank begins with other parameters."""
    found = of_all(rank.digests[0].before for rank in several)
    expected = one.digests[0].before
    wrong = differing(expected, found, Tolerance(SAME_WITHIN, 0))
    if not wrong:
        return []
    return [
        f"parameters before the first step: {len(several)} ranks differ from "
        f"one in {len(wrong)} of {len(expected)}, first in {wrong[0]}",
        "it looks like: they are made from other random numbers (is the seed "
        "of the model another one where there is one rank?)",
    ]


def compare_with_one(
    one: Kept, several: Sequence[Kept], steps: int
) -> list[str]:
    """Return in what several ranks differ from one, in lines.

    Args:
        one: What one rank has kept, with the same global batch.
        several: What each of several ranks has kept.
        steps: How many steps are compared.
    """
    looks: list[Look] = [
        partial(_changes_with_one, one, several),
        partial(_buffers_with_one, one, several),
        partial(_gradients_with_one, one, several),
        partial(_rates_with_one, one, several),
        partial(_moved_with_one, one, several),
        partial(_parameters_with_one, one, several),
    ]
    return first_lines(looks, steps)


def _allowed(one: Kept, several: Sequence[Kept]) -> Tolerance:
    return tolerance(max(rank.rounding for rank in (one, *several)))


def _changes_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    wrong = [
        name
        for name in one.digests[step].before
        if any(name in other_changes(one, rank, step) for rank in several)
    ]
    if not wrong:
        return []
    return [
        f"parameters change after step {step}, outside of the optimizer: on "
        f"{len(several)} ranks otherwise than on one, in {len(wrong)} of "
        f"{len(one.digests[step].before)}, first in {wrong[0]}",
        "it looks like: a decay, a limit or an average that is done by hand, "
        "by a number that depends on the number of ranks",
    ]


def _buffers_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.facts[step].buffers
    found = of_all(rank.facts[step].buffers for rank in several)
    allowed = Tolerance(_allowed(one, several).relative, 0)
    wrong = [n for n in differing(expected, found, allowed) if n in found]
    if not wrong:
        return []
    return [
        f"buffers that forward uses in step {step + 1}: {len(several)} ranks "
        f"differ from one in {len(wrong)} of {len(expected)}, first in "
        f"{wrong[0]}",
        "it looks like: they are statistics of a rank's own examples, as of "
        "batch normalization; SyncBatchNorm takes those of all",
    ]


def _gradients_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    allowed = _allowed(one, several)
    expected = one.digests[step].gradients
    found = joined_step(several, step).gradients
    wrong = differing(expected, found, allowed)
    if not wrong:
        return []
    line = (
        f"gradients of step {step + 1}: {len(several)} ranks differ from "
        f"one in {len(wrong)} of {len(expected)}, first in {wrong[0]}"
    )
    factor = common_factor(expected, found, wrong, allowed)
    if factor is None:
        return [line, *causes.other_gradients(one, several, step)]
    longer = f"all of these are {factor:.4g} times as long as with one"
    if len(wrong) < len(more_than_rounding(expected, allowed)):
        return [line, longer, causes.SOME_LONGER]
    return [line, longer, *causes.longer_gradients(factor, len(several))]


def _rates_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.digests[step].rates
    found = several[0].digests[step].rates
    wrong = other_rates(expected, found)
    if not wrong:
        return []
    there, here = expected[wrong[0]], found[wrong[0]]
    return [
        f"learning rates of step {step + 1}: {here:.6g} on {len(several)} "
        f"ranks, {there:.6g} on one, though the gradients agree",
        causes.told_rates(there, here, step, len(several)),
    ]


def _moved_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.digests[step]
    found = joined_step(several, step)
    wrong = other_moves(expected, found, _allowed(one, several))
    if not wrong:
        return []
    name = wrong[0]
    return [
        f"parameters of step {step + 1}: {len(several)} ranks differ from one "
        f"in {len(wrong)} of {len(expected.moved)}, first in {name}, which "
        f"moves {abs(found.moved[name]):.4g} along its gradient, and "
        f"{abs(expected.moved[name]):.4g} on one rank; the gradients (before "
        "they are clipped) and the learning rates agree",
        causes.MOVED,
    ]


def _parameters_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    """Compare the values of parameters: most of them have to agree.

    Adam may have moved a few by rounding: those that have next to no gradient.
    """
    expected = one.digests[step].parameters
    found = joined_step(several, step).parameters
    wrong = differing(
        expected, found, Tolerance(_allowed(one, several).relative, 0)
    )
    if 2 * len(wrong) <= len(expected):
        return []
    return [
        f"parameters of step {step + 1}: {len(several)} ranks differ from one "
        f"in {len(wrong)} of {len(expected)}, first in {wrong[0]}, though "
        "gradients and steps of the optimizer agree",
        "it looks like: parameters are changed outside of the optimizer, by "
        "another amount than on one rank",
    ]
