"""What a difference between ranks looks like, by what was measured of it.

Each function returns what was measured, and then what it looks like.
"""

from collections.abc import Sequence
from math import isclose
from typing import Any

from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import SAME_WITHIN, near_numbers, weights_of
from dpkit.runs.check.same_examples import unseen

SAME_FACTOR = 1e-3
_WEIGHTS = 0.01  # how far apart weights may be that are equal
SOME_LONGER = (
    "the others agree, so that it is not the loss; it looks like: these are "
    "scaled, or added up, apart from the others; or they are used on some "
    "ranks alone"
)
MOVED = (
    "it looks like: gradients are clipped, or scaled, by another number than "
    "on one rank; or the optimizer decays, or keeps averages, in another way"
)


def by_rank(values: Sequence[Any]) -> str:
    """Return a value of each rank, as words."""
    return ", ".join(f"rank {r}: {value}" for r, value in enumerate(values))


def gradients_apart(
    several: Sequence[Kept],
    step: int,
    wrong: Sequence[str],
    factor: float | None,
) -> list[str]:
    """Return why gradients differ among ranks.

    Args:
        several: What ranks have kept.
        step: In which step, from 0 on.
        wrong: The names of the parameters whose gradients do.
        factor: By which all are longer than those of rank 0, if there is one.
    """
    scales = [rank.digests[step].scales for rank in several]
    if any(one != scales[0] for one in scales):
        listed = by_rank([one[-1] if one else "none" for one in scales])
        return [
            f"their GradScalers have different scales ({listed})",
            "it looks like: each rank has a GradScaler of its own, and some "
            "ranks alone have loaded its state or have skipped a step; "
            "gradients are averaged while they are scaled, and each rank "
            "divides the mean by its own scale",
        ]
    if factor is not None:
        return [
            "it looks like: some ranks change their gradients after these are "
            "averaged, by one factor of their own, as by clipping or a scale"
        ]
    if all(are_own(rank, step, wrong) for rank in several):
        return [
            "each rank's are those that its own backward has computed: they "
            "were not averaged",
            _not_averaged(several),
        ]
    if len(wrong) == len(several[0].digests[step].gradients):
        return [
            "it looks like: the model is not wrapped, so that gradients "
            "are not averaged; or it was made from another seed before "
            "it was wrapped by hand; or some ranks change their "
            "gradients after these are averaged"
        ]
    return [
        "it looks like: some parameters are used outside of the wrapped "
        "model's forward, or are changed after their allreduce"
    ]


def are_own(rank: Kept, step: int, names: Sequence[str]) -> bool:
    """Return whether gradients are those that a rank's backward computed."""
    gradients = rank.digests[step].gradients
    own = rank.digests[step].own
    return all(
        name in gradients
        and bool(own.get(name))
        and abs(sum(own[name]) - gradients[name].along)
        <= SAME_WITHIN * gradients[name].length
        for name in names
    )


def _not_averaged(several: Sequence[Kept]) -> str:
    if any(rank.is_wrapped for rank in several):
        return (
            "it looks like: the wrapped model is not called itself, but "
            "model.module(x) is, or it is called inside of no_sync; or "
            "another model beside it is not wrapped"
        )
    return (
        "it looks like: the model is not wrapped, so that gradients are not "
        "averaged; or it is, and model.module(x) is called in place of "
        "model(x)"
    )


def parameters_apart(several: Sequence[Kept]) -> str:
    """Return why parameters differ among ranks though gradients agree."""
    states = [rank.states for rank in several]
    if len(set(states)) > 1:
        return (
            "before the first step, optimizers have states of different "
            f"numbers of parameters ({by_rank(states)}); it looks like: the "
            "state of the optimizer is loaded by some ranks alone"
        )
    if several[0].averaged:
        return (
            "it looks like: the optimizer, which averages gradients inside of "
            "its step, does so for some parameters and not for these; or it "
            "does not send all of what each rank has updated"
        )
    return (
        "it looks like: something is done to gradients or parameters by some "
        "ranks alone, after backward; or their optimizers begin with other "
        "states"
    )


def told_rates(one: float, several: float, step: int, ranks: int) -> str:
    """Return why learning rates are others than on one rank.

    Args:
        one: That of one rank.
        several: That of several.
        step: The first step in which they differ, from 0 on.
        ranks: How many there are.
    """
    if step:
        return (
            "they agree until then; it looks like: the schedule takes another "
            "number of steps than on one rank, as one for each rank, or its "
            "length counts the batches of one rank"
        )
    if one and isclose(several / one, ranks, rel_tol=SAME_FACTOR):
        return (
            "it looks like: the learning rate is multiplied by the number of "
            "ranks, which is for a global batch that grows with it; here one "
            "rank has the same global batch"
        )
    return "it looks like: the learning rate depends on the number of ranks"


def longer_gradients(factor: float, ranks: int) -> list[str]:
    """Return why all gradients are longer by one factor than with one."""
    looks = []
    if near_numbers(factor * ranks, 1, relative=SAME_FACTOR):
        looks.append(
            "the loss is divided by the number of ranks, and "
            "DistributedDataParallel divides again; or it is not divided by "
            "the number of micro-batches, of which several ranks have fewer "
            "each; or it is a sum over examples, of which gradients are "
            "averaged"
        )
    if near_numbers(factor, ranks, relative=SAME_FACTOR):
        looks.append(
            "gradients are added up and not averaged, or the "
            "loss is not divided by the number of micro-batches"
        )
    for part in range(2, ranks + 1):
        if ranks % part == 0 and near_numbers(
            factor * factor * part, 1, relative=SAME_FACTOR
        ):
            looks.append(
                f"1/{factor:.4g} is the root of {part}: gradients are clipped "
                "by hand, and their norm is added up over ranks that have "
                "the same ones"
            )
    if not looks:
        looks.append(
            "the loss is divided by another number than with one "
            "rank, such as that of micro-batches; or gradients are scaled, as "
            "by clipping by hand, by a number that is another with one"
        )
    return ["it looks like: " + "; or ".join(looks)]


def other_gradients(
    one: Kept, several: Sequence[Kept], step: int
) -> list[str]:
    """Return why gradients differ from those of one, by no one factor."""
    targets = [rank.facts[step].targets for rank in several]
    weights = weights_of(
        one.digests[step].own, [rank.digests[step].own for rank in several]
    )
    lines = []
    if len(set(targets)) > 1:
        lines.append(
            "targets that count in the loss, and are not ignored: "
            + by_rank(targets)
        )
    alone = _alone(weights)
    if alone is not None:
        return [
            f"before anything is averaged, one rank's are those of rank "
            f"{alone} alone",
            "it looks like: another global batch, as one rank has the "
            f"examples of rank {alone} and not those of all (--one gives one "
            "rank the batch of all)",
        ]
    is_mean = weights is not None and near_numbers(
        sum(weights), 1, relative=_WEIGHTS
    )
    if weights is not None and is_mean and _spread(weights) > _WEIGHTS:
        shares = " + ".join(
            f"{weight:.3g} of rank {r}'s" for r, weight in enumerate(weights)
        )
        lines.append(
            f"before anything is averaged, one rank's are {shares}, and not "
            f"{1 / len(several):.3g} of each"
        )
    if lines:
        return [
            *lines,
            "it looks like: each rank's loss is a mean over what counts on "
            "this rank (tokens, targets that are not masked), of which ranks "
            "have different numbers; the mean of such means is not the mean "
            "over all, but the mean of sums is, if each is divided by the "
            "mean number of all ranks",
        ]
    if weights is not None and is_mean:
        return [
            "before anything is averaged, one rank's are the mean of the "
            "ranks': backward computes the same",
            "it looks like: gradients are averaged, clipped or scaled "
            "otherwise than as their mean; or some parameters are used "
            "outside of the wrapped model's forward",
        ]
    return ["it looks like: " + "; or ".join(_of_batches(one, several, step))]


def _alone(weights: Sequence[float] | None) -> int | None:
    """Return the rank whose gradients those of one rank are, if any."""
    for rank, weight in enumerate(weights or []):
        others = sum(abs(w) for w in weights or []) - abs(weight)
        if abs(weight - 1) < _WEIGHTS and others < _WEIGHTS:
            return rank
    return None


def _spread(weights: Sequence[float]) -> float:
    return (max(weights) - min(weights)) * len(weights)


def _of_batches(one: Kept, several: Sequence[Kept], step: int) -> list[str]:
    """Return what may give one rank other gradients for its batch."""
    facts = [rank.facts[step] for rank in (one, *several)]
    looks = []
    if not facts[0].examples or unseen(one, several, step):
        looks.append(
            "another global batch (--one gives one rank the batch of all)"
        )
    if any(found.draws for found in facts):
        looks.append("other random numbers, as of dropout")
    if any(found.normalizes for found in facts):
        looks.append(
            "batch normalization, by the statistics of a rank's own examples"
        )
    if step:
        looks.append(
            "something that only shows after a step: the state of the "
            "optimizer, gradients that are not set to zero"
        )
    looks.append(
        "a loss that is not a mean over examples, such as one that compares "
        "examples of a batch; or an evaluation inside of the step"
    )
    return looks
