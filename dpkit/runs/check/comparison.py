"""How the steps of two ranks are compared, in two runs or in one.

``among_ranks`` compares several ranks of a run with each other, ``with_one``
compares them with one rank that has the same global batch. Where they differ,
the first that does is named, and what was measured of it; ``causes`` says what
that looks like::

    for each step    among ranks      with one rank
    parameters       yes              yes            changed by hand before it
    buffers          yes              yes            when forward uses them
    gradients        yes              yes            before they are clipped
    learning rates   yes              yes
    parameters       yes              yes            and how far they move
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dpkit.runs.check.digests import Digest, StepDigests
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import Tolerance, longest, near_numbers

Look = Callable[[int], list[str]]  # at a step: lines, or none
Found = TypeVar("Found")


def first_lines(looks: Sequence[Look], steps: int) -> list[str]:
    """Return the lines of the first look, in the first step, that has any."""
    for step in range(steps):
        for look in looks:
            lines = look(step)
            if lines:
                return lines
    return []


def steps_compared(one: Kept, several: Sequence[Kept]) -> int:
    """Return how many steps all runs have done."""
    return min(len(rank.digests) for rank in (one, *several))


def all_clear(several: Sequence[Kept], steps: int) -> str:
    """Return how much was compared, in words."""
    found = joined_step(several, 0)
    used, held = len(found.gradients), len(found.parameters)
    of_all = f" of {held}, as the others got no gradient" * (used < held)
    return f"parameters: {used}{of_all}, steps: {steps}"


def nothing_compared(rank: Kept, where: str) -> list[str]:
    """Return a line if there is nothing to compare, or nothing but zeros."""
    if not rank.digests:
        return [
            f"no optimizer has done a step {where}, so that nothing is "
            "compared (a GradScaler leaves out steps that overflow; a script "
            "that resumes from a checkpoint may have none left to do)"
        ]
    for number, step in enumerate(rank.digests, 1):
        held = len(step.parameters)
        if not step.gradients:
            return [
                f"step {number}: no parameter that the optimizer holds got a "
                f"gradient {where} (parameters: {held}), so that the step "
                "changes nothing",
                "it looks like: the optimizer was made before the model got "
                "other parameters, as by fully_shard, to_empty or another "
                "copy; or the loss does not depend on them",
            ]
        infinite = [
            name
            for name, found in step.gradients.items()
            if not math.isfinite(found.length)
        ]
        if infinite:
            return [
                f"gradients of step {number} are not finite {where}, in "
                f"{len(infinite)} of {len(step.gradients)} parameters, first "
                f"in {infinite[0]}, so that nothing is compared"
            ]
        if not longest(step.gradients):
            return [
                f"gradients of step {number} are all 0 {where}, so that "
                "they compare equal whatever the ranks do: does the loss "
                "depend on the parameters?"
            ]
    return []


def of_all(tables: Iterable[dict[str, Found]]) -> dict[str, Found]:
    """Return what ranks have, by name: of several the first that has it."""
    # Stages of a pipeline have different parameters.
    found: dict[str, Found] = {}
    for table in tables:
        found = table | found
    return found


def joined_step(several: Sequence[Kept], step: int) -> StepDigests:
    """Return what ranks have in a step."""
    kept = [rank.digests[step] for rank in several]
    return kept[0]._replace(
        gradients=of_all(one.gradients for one in kept),
        parameters=of_all(one.parameters for one in kept),
        moved=of_all(one.moved for one in kept),
    )


def other_rates(
    expected: Mapping[str, float], found: Mapping[str, float]
) -> list[str]:
    """Return the groups of optimizers that have other learning rates."""
    return [
        group
        for group in expected
        if group in found
        and not near_numbers(expected[group], found[group], relative=1e-6)
    ]


def other_moves(
    one: StepDigests, other: StepDigests, allowed: Tolerance
) -> list[str]:
    """Return the parameters that a step has moved otherwise.

    A gradient that is nearly all rounding tells nothing of its direction.
    """
    noise = allowed.of_longest * longest(one.gradients)
    wrong = []
    for name, moved in one.moved.items():
        if name not in other.moved or name not in one.parameters:
            continue
        length = one.gradients[name].length
        share = 10 * allowed.relative + (2 * noise / length if length else 2)
        stored = 2 * one.stored * one.parameters[name].length
        scale = max(abs(moved), abs(other.moved[name]))
        if abs(moved - other.moved[name]) > share * scale + stored:
            wrong.append(name)
    return wrong


def other_changes(one: Kept, other: Kept, step: int) -> list[str]:
    """Return the parameters that are changed otherwise between two steps.

    Nothing changes them there, as a rule.
    """
    if not step:
        return []
    return [
        name
        for name in one.digests[step].before
        if not _is_same_change(
            _change(one, name, step), _change(other, name, step)
        )
    ]


def _change(rank: Kept, name: str, step: int) -> Digest | None:
    """Return how digests change from the last step to the next.

    Its length is how far rounding may change them.
    """
    before = rank.digests[step].before.get(name)
    after = rank.digests[step - 1].left.get(name)
    if before is None or after is None:
        return None
    rounding = 4 * rank.digests[step].stored * before.length
    return Digest(before.shape, rounding, before.along - after.along)


def _is_same_change(one: Digest | None, other: Digest | None) -> bool:
    if one is None or other is None:
        return True  # it is of another stage
    scale = 0.01 * max(abs(one.along), abs(other.along)) + one.length
    return abs(one.along - other.along) <= scale
