"""Parameters that are parts of larger ones, where a script divides layers.

A layer divided by hand, as tensor parallelism does, has a part of its weight
on each rank, under one name and of one shape. There is no mistake in it that
parts and their gradients differ from rank to rank::

                          before the first step    gradients    layers send
    a part                differs                  its own      in forward
    a model of own seeds  differs                  averaged     as a rule not
    a forgotten wrapper   equal                    its own      as a rule not
"""

from collections.abc import Sequence

from dpkit.runs.check.causes import are_own
from dpkit.runs.check.digests import Digest, StepDigests
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import SAME_WITHIN, Tolerance, differing


def without_parts(several: Sequence[Kept]) -> list[Kept]:
    """Return what ranks keep of the parameters that each of them has whole.

    If all parameters look like parts, nothing would be left to compare, and
    all are kept.
    """
    parts = _parts(several)
    if not parts or parts == {*several[0].digests[0].before}:
        return list(several)
    return [
        rank._replace(
            digests=[_without(parts, step) for step in rank.digests],
            parts=sorted(parts),
        )
        for rank in several
    ]


def _parts(several: Sequence[Kept]) -> set[str]:
    """Return the parameters that look like parts of larger ones."""
    is_divided = all(
        rank.sends_in_forward and rank.digests for rank in several
    )
    if not is_divided:
        return set()
    first = several[0].digests[0].before
    exact = Tolerance(SAME_WITHIN, 0)
    apart: set[str] = set()
    for rank in several:
        found = rank.digests[0].before
        if found.keys() != first.keys():
            return set()  # such as the stages of a pipeline
        apart |= {*differing(first, found, exact)}
    return {
        name
        for name in apart
        if all(are_own(rank, 0, [name]) for rank in several)
    }


def _without(parts: set[str], step: StepDigests) -> StepDigests:
    """Return what is kept of a step, without some parameters."""

    def rest(digests: dict[str, Digest]) -> dict[str, Digest]:
        return {n: one for n, one in digests.items() if n not in parts}

    return step._replace(
        gradients=rest(step.gradients),
        own={n: own for n, own in step.own.items() if n not in parts},
        before=rest(step.before),
        begun=rest(step.begun),
        parameters=rest(step.parameters),
        left=rest(step.left),
        moved={n: way for n, way in step.moved.items() if n not in parts},
    )
