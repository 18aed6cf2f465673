"""Optimizers that average gradients themselves, inside of their step.

Optimizers that divide their state by hand do so, as in some public scripts::

              before the step   inside of it                    after it
    rank 0    own gradients     reduce_scatter, its part of     equal
    rank 1    own gradients     the update, all_gather          parameters

So gradients that differ before the step are no mistake there. The mean of the
ranks' own is compared with the gradients of one rank, by their components; and
the parameters after the step have to be equal to the last bit, as ranks that
have not averaged may take steps too small to be seen otherwise.
"""

import math
from collections.abc import Sequence

from dpkit.runs.check.causes import are_own
from dpkit.runs.check.digests import Digest, StepDigests
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import differing


def with_means(several: Sequence[Kept]) -> list[Kept]:
    """Return what ranks keep, with the means of gradients to be averaged.

    Where no optimizer averages, that is what they have kept.
    """
    names = _averaged_inside(several)
    means = []
    for steps in zip(*(rank.digests for rank in several)):
        parts = {name: [one.own[name] for one in steps] for name in names}
        means.append(
            {
                name: [sum(column) / len(several) for column in zip(*own)]
                for name, own in parts.items()
            }
        )
    return [_with_gradients(rank, means) for rank in several]


def with_own(one: Kept, several: Sequence[Kept]) -> Kept:
    """Return what one rank keeps, to be compared with the means of several."""
    names = several[0].averaged
    means = [
        {name: step.own[name] for name in names if step.own.get(name)}
        for step in one.digests
    ]
    return _with_gradients(one, means)


def _averaged_inside(several: Sequence[Kept]) -> list[str]:
    """Return the parameters whose gradients the optimizer's step averages.

    They differ before it, are those that each rank's backward has computed,
    and the step reduces at least half as many numbers. If it forgets some, its
    parameters differ after the step.
    """
    steps = range(min(len(rank.digests) for rank in several))
    names: set[str] = set()
    for step in steps:
        first = several[0].digests[step].gradients
        for rank in several:
            names |= {*differing(first, rank.digests[step].gradients)}
    are_reduced = all(
        are_own(rank, step, sorted(names))
        and 2 * rank.digests[step].reduced >= _size(rank.digests[step], names)
        for rank in several
        for step in steps
    )
    return sorted(names) if are_reduced else []


def _size(step: StepDigests, names: set[str]) -> int:
    """Return how many numbers the gradients of some parameters have."""
    return sum(math.prod(step.gradients[name].shape) for name in names)


def _with_gradients(
    rank: Kept, components: Sequence[dict[str, list[float]]]
) -> Kept:
    """Return what a rank keeps, with other gradients.

    How far a step moves along a rank's own gradient is left out for these.

    Args:
        rank: What it keeps.
        components: Of the gradients of each step, by names.
    """
    names = [*components[0]] if components else []
    digests = [
        step._replace(
            gradients=step.gradients
            | {
                name: Digest(
                    step.gradients[name].shape, math.hypot(*own), sum(own)
                )
                for name, own in found.items()
            },
            moved={n: way for n, way in step.moved.items() if n not in found},
        )
        for step, found in zip(rank.digests, components)
    ]
    return rank._replace(digests=digests, averaged=names)
