"""One rank against several: whether they compute the same steps.

If the global batch is the same, the gradients of k ranks are those of one,
and so are the parameters after each step, the buffers and the learning rates;
and all ranks agree with each other. Where they differ, the first that does is
named, and what was measured of it; ``causes`` says what that looks like::

    for each step    among ranks      with one rank
    buffers          yes              yes            when forward uses them
    gradients        yes              yes            before they are clipped
    learning rates   yes              yes
    parameters       yes              yes            and how far they move
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dpkit.torchrun import causes
from dpkit.torchrun.digests import Digest, StepDigests
from dpkit.torchrun.kept import Kept
from dpkit.torchrun.nearness import (
    SAME_WITHIN,
    Tolerance,
    common_factor,
    differing,
    longest,
    more_than_rounding,
    near_numbers,
    tolerance,
)

Look = Callable[[int], list[str]]  # at a step: lines, or none


def ranks_agree(several: Sequence[Kept]) -> bool:
    """Return whether ranks have the same gradients and parameters.

    Where they do not, not all of them can have those of one.
    """
    is_flat = any(rank.is_flat for rank in several)
    return not is_flat and not _among_ranks(several)


def compare_among(several: Sequence[Kept]) -> list[str]:
    """Return what differs among ranks, in lines."""
    if any(rank.is_flat for rank in several):
        return [
            "FullyShardedDataParallel keeps parts of flat parameters, which "
            "are not compared; fully_shard keeps a part of each"
        ]
    nothing = nothing_compared(several[0], "on several ranks")
    if nothing:
        return nothing
    return [
        *_data_apart(several),
        *_sizes_of_batches(several),
        *_among_ranks(several),
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
    return _first_lines(looks, steps)


def steps_compared(one: Kept, several: Sequence[Kept]) -> int:
    """Return how many steps all runs have done."""
    return min(len(rank.digests) for rank in (one, *several))


def all_clear(several: Sequence[Kept], steps: int) -> str:
    """Return how much was compared, in words."""
    found = joined(several, 0)
    used, held = len(found.gradients), len(found.parameters)
    of_all = f" of {held}, as the others got no gradient" * (used < held)
    return f"parameters: {used}{of_all}, steps: {steps}"


def nothing_compared(rank: Kept, where: str) -> list[str]:
    """Return a line if there is nothing to compare, or nothing but zeros."""
    if not rank.digests:
        return [
            f"no optimizer has done a step {where}, so that nothing is "
            "compared"
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
        if not longest(step.gradients):
            return [
                f"gradients of step {number} are all 0 {where}, so that "
                "they compare equal whatever the ranks do: does the loss "
                "depend on the parameters?"
            ]
    return []


def compare_first(one: Kept, several: Sequence[Kept]) -> list[str]:
    """Return a line if one rank begins with other parameters."""
    found: dict[str, Digest] = {}
    for rank in reversed(several):
        found |= rank.digests[0].before  # stages have different ones
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


def _first_lines(looks: Sequence[Look], steps: int) -> list[str]:
    """Return the lines of the first look, in the first step, that has any."""
    for step in range(steps):
        for look in looks:
            lines = look(step)
            if lines:
                return lines
    return []


def _data_apart(several: Sequence[Kept]) -> list[str]:
    """Compare which part of the data the samplers of ranks divide."""
    for place, parts in enumerate(zip(*(rank.data for rank in several)), 1):
        if len(set(parts)) > 1:
            return [
                f"DistributedSampler {place} has other data on some ranks: "
                "the ranks' datasets are different parts of the data",
                "it looks like: random_split without a seed, or with another "
                "seed on each rank; ranks train on what others keep to "
                "evaluate by",
            ]
    return []


def _sizes_of_batches(several: Sequence[Kept]) -> list[str]:
    """Compare how many examples the models of ranks were given."""
    for call, sizes in enumerate(zip(*(r.batches for r in several)), 1):
        if len(set(sizes)) > 1:
            return [
                f"forward {call}: ranks have batches of different sizes "
                f"({causes.by_rank(sizes)}); a mean over each rank's "
                "examples, averaged over ranks, is not the mean over all"
            ]
    return []


def _among_ranks(several: Sequence[Kept]) -> list[str]:
    """Compare what ranks have that have the same parameters.

    The stages of a pipeline have different ones.
    """
    steps = min(len(rank.digests) for rank in several)
    if not steps:
        return []
    expected = shapes(several[0].digests[0].before)
    looks: list[Look] = []
    for rank in range(1, len(several)):
        if shapes(several[rank].digests[0].before) != expected:
            continue
        looks += [
            partial(_changes_apart, several, rank),
            partial(_buffers_apart, several, rank),
            partial(_gradients_apart, several, rank),
            partial(_rates_apart, several, rank),
            partial(_parameters_apart, several, rank),
        ]
    return _first_lines(looks, steps)


def shapes(digests: Mapping[str, Digest]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what has digests."""
    return {name: one.shape for name, one in digests.items()}


def _buffers_apart(several: Sequence[Kept], rank: int, step: int) -> list[str]:
    expected = several[0].facts[step].buffers
    found = several[rank].facts[step].buffers
    wrong = differing(expected, found, Tolerance(SAME_WITHIN, 0))
    if not wrong:
        return []
    return [
        f"buffers that forward uses in step {step + 1}: rank {rank} differs "
        f"from rank 0 in {len(wrong)} of {len(expected)}, first in {wrong[0]}",
        "it looks like: each rank keeps statistics of its own examples, as "
        "batch normalization does without SyncBatchNorm and with "
        "broadcast_buffers=False; they evaluate, and are saved, as different "
        "models",
    ]


def _changes_apart(several: Sequence[Kept], rank: int, step: int) -> list[str]:
    wrong = _other_changes(several[0], several[rank], step)
    if not wrong:
        return []
    return [
        f"parameters before step {step + 1}: rank {rank} differs from rank 0 "
        f"in {len(wrong)} of {len(several[0].digests[step].before)}, first in "
        f"{wrong[0]}, though they agreed after step {step}",
        "it looks like: something is done to parameters by some ranks alone, "
        "outside of the optimizer",
    ]


def _other_changes(one: Kept, other: Kept, step: int) -> list[str]:
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


def _gradients_apart(
    several: Sequence[Kept], rank: int, step: int
) -> list[str]:
    expected = several[0].digests[step].gradients
    found = several[rank].digests[step].gradients
    wrong = differing(expected, found)
    if not wrong:
        return []
    factor = common_factor(expected, found, expected)
    lines = [
        f"gradients of step {step + 1}: rank {rank} differs from rank 0 in "
        f"{len(wrong)} of {len(expected)}, first in {wrong[0]} "
        f"{expected[wrong[0]].shape}"
    ]
    if factor is not None:
        lines.append(f"all of them are {factor:.4g} times as long as there")
    return lines + causes.gradients_apart(several, step, wrong, factor)


def _rates_apart(several: Sequence[Kept], rank: int, step: int) -> list[str]:
    expected = several[0].digests[step].rates
    found = several[rank].digests[step].rates
    wrong = _other_rates(expected, found)
    if not wrong:
        return []
    return [
        f"learning rates of step {step + 1}: {found[wrong[0]]:.6g} on rank "
        f"{rank}, {expected[wrong[0]]:.6g} on rank 0",
        "it looks like: the ranks' schedules take other numbers of steps, or "
        "some ranks alone have loaded a schedule's state",
    ]


def _other_rates(
    expected: Mapping[str, float], found: Mapping[str, float]
) -> list[str]:
    return [
        group
        for group in expected
        if group in found
        and not near_numbers(expected[group], found[group], 1e-6)
    ]


def _parameters_apart(
    several: Sequence[Kept], rank: int, step: int
) -> list[str]:
    zero, other = several[0].digests[step], several[rank].digests[step]
    wrong = differing(
        zero.parameters, other.parameters, Tolerance(SAME_WITHIN, 0)
    )
    wrong = wrong or _other_moves(zero, other, tolerance())
    if not wrong:
        return []
    return [
        f"parameters of step {step + 1}: rank {rank} differs from rank 0 in "
        f"{len(wrong)} of {len(zero.parameters)}, first in {wrong[0]} "
        f"{zero.parameters[wrong[0]].shape}",
        causes.parameters_apart(several),
    ]


def _other_moves(
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


def joined(several: Sequence[Kept], step: int) -> StepDigests:
    """Return what ranks have in a step; stages have different parameters."""
    first = several[0].digests[step]
    gradients: dict[str, Digest] = {}
    parameters: dict[str, Digest] = {}
    moved: dict[str, float] = {}
    for rank in reversed(several):
        kept = rank.digests[step]
        gradients |= kept.gradients
        parameters |= kept.parameters
        moved |= kept.moved
    return first._replace(
        gradients=gradients, parameters=parameters, moved=moved
    )


def _allowed(one: Kept, several: Sequence[Kept]) -> Tolerance:
    return tolerance(max(rank.rounding for rank in (one, *several)))


def _gradients_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    allowed = _allowed(one, several)
    expected = one.digests[step].gradients
    found = joined(several, step).gradients
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
    told = f"all of these are {factor:.4g} times as long as with one"
    if len(wrong) < len(more_than_rounding(expected, allowed)):
        return [line, told, causes.SOME_LONGER]
    return [line, told, *causes.longer_gradients(factor, len(several))]


def _rates_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.digests[step].rates
    found = several[0].digests[step].rates
    wrong = _other_rates(expected, found)
    if not wrong:
        return []
    there, here = expected[wrong[0]], found[wrong[0]]
    return [
        f"learning rates of step {step + 1}: {here:.6g} on {len(several)} "
        f"ranks, {there:.6g} on one, though the gradients agree",
        causes.other_rates(there, here, step, len(several)),
    ]


def _moved_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.digests[step]
    found = joined(several, step)
    wrong = _other_moves(expected, found, _allowed(one, several))
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


def _changes_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    wrong = [
        name
        for name in one.digests[step].before
        if any(name in _other_changes(one, rank, step) for rank in several)
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


def _parameters_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    """Compare the values of parameters: most of them have to agree.

    Of a few, Adam may have moved by rounding what has next to no gradient.
    """
    expected = one.digests[step].parameters
    found = joined(several, step).parameters
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


def _buffers_with_one(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    expected = one.facts[step].buffers
    found: dict[str, Digest] = {}
    for rank in reversed(several):
        found |= rank.facts[step].buffers
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
