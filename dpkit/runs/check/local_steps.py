"""Ranks that step alone, and average their parameters later, in rounds.

Local SGD and DiLoCo do so. In a round each rank steps by its own gradients.
Then the parameters are averaged, or how far they have moved, and all ranks go
on from there::

    step            1       2       3       4       5
    gradients       own     own     own     own     own
    begins with     equal   apart   apart   equal   apart

Ranks that have forgotten to average begin as well, and are never equal again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dpkit.runs.check.causes import are_own
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import differing


class RoundsOfSteps(NamedTuple):
    """When the parameters of ranks that step alone are equal, to the bit.

    A moment is "step 4", for when that begins, or "the end".
    """

    apart: list[str]  # moments at which some differ
    equal: list[str]  # moments after the first of these: all are equal again
    never: list[str]  # the parameters that are never equal again
    num_apart: int  # of all that have differed


def step_alone(several: Sequence[Kept]) -> bool:
    """Return whether each rank steps by its own gradients.

    From the first step on in which gradients differ between ranks, they have
    to be those that each rank's backward has computed. If some are averaged,
    others were forgotten.
    """
    expected = several[0].digests[0].before.keys()
    if any(rank.digests[0].before.keys() != expected for rank in several):
        return False  # such as the stages of a pipeline
    has_begun = False
    for step in range(min(len(rank.digests) for rank in several)):
        gradients = [rank.digests[step].gradients for rank in several]
        wrong = {n for one in gradients for n in differing(gradients[0], one)}
        has_begun = has_begun or bool(wrong)
        # DiLoCo's second optimizer has gradients that no backward computes.
        own = several[0].digests[step].own
        computed = wrong | {name for name in own if own[name]}
        if has_begun and not all(
            are_own(rank, step, sorted(computed)) for rank in several
        ):
            return False
    return has_begun


def rounds_of(several: Sequence[Kept]) -> RoundsOfSteps:
    """Return when the parameters of ranks differ, and are equal again."""
    by_rank = [
        [*(step.begun for step in rank.digests), rank.at_end]
        for rank in several
    ]
    steps = min(len(rank.digests) for rank in several)
    moments = [*(f"step {step}" for step in range(1, steps + 1)), "the end"]
    known = [n for n in by_rank[0][0] if all(n in x for x in by_rank[0])]
    apart: list[str] = []
    equal: list[str] = []
    differed: set[str] = set()
    joined: set[str] = set()  # those that were equal after they had differed
    for moment, found in zip(moments, zip(*by_rank)):
        names = {n for n in known if len({x.get(n) for x in found}) > 1}
        joined |= differed - names
        differed |= names
        if names:
            apart.append(moment)
        elif apart:
            equal.append(moment)
    never = [n for n in known if n in differed - joined]
    return RoundsOfSteps(apart, equal, never, len(differed))


def averages_later(rounds: RoundsOfSteps) -> list[str]:
    """Return what was measured of ranks that average in rounds, in lines."""
    return [
        "each rank steps by its own gradients; their parameters differ at "
        f"{_told(rounds.apart)}, and are equal again at "
        f"{_told(rounds.equal)}: the ranks step alone and average their "
        "parameters later, as local SGD and DiLoCo do",
        "they are not compared with one rank, which steps once where they "
        "average gradients",
    ]


def never_equal_again(rounds: RoundsOfSteps) -> list[str]:
    """Return which parameters are left out where ranks average others."""
    others = rounds.num_apart - len(rounds.never)
    if not others or not rounds.never:
        return []
    return [
        f"each rank steps by its own gradients, and {others} of "
        f"{rounds.num_apart} parameters are made equal later, as local SGD "
        f"and DiLoCo do; but never {', '.join(rounds.never)}"
    ]


def _told(moments: Sequence[str]) -> str:
    return ", ".join(moments[:3]) + " …" * (len(moments) > 3)
