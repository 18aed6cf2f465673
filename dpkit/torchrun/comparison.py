"""One rank against several: whether they compute the same gradients.

If the global batch is the same, the gradients of k ranks are those of one,
and all ranks have the same parameters after each step. Where they differ, the
first that does is named, and the mistakes that look like it.
"""

from collections.abc import Mapping, Sequence

from dpkit.torchrun.digests import Digest, KeptDigests

SAME_WITHIN = 1e-4  # relative: sums are taken in another order


def compare_ranks(
    one: KeptDigests, several: Sequence[KeptDigests]
) -> list[str]:
    """Return what differs, in lines; none if nothing does.

    Args:
        one: What one rank has kept, with the same global batch.
        several: What each of several ranks has kept.
    """
    if any(rank.is_flat for rank in several):
        return [
            "FullyShardedDataParallel keeps parts of flat parameters, which "
            "are not compared; fully_shard keeps a part of each"
        ]
    if not one.parameters or not several[0].parameters:
        return ["no optimizer has done a step, so that nothing is compared"]
    return [
        *_numbers_of_steps(several),
        *_sizes_of_batches(several),
        *_without_gradients(one),
        *_among_ranks(several),
        *_with_one(one, several),
    ]


def steps_compared(one: KeptDigests, several: Sequence[KeptDigests]) -> int:
    """Return how many steps all runs have done."""
    return min(len(rank.parameters) for rank in (one, *several))


def _numbers_of_steps(several: Sequence[KeptDigests]) -> list[str]:
    counts = [len(rank.parameters) for rank in several]
    if len(set(counts)) == 1:
        return []
    told = ", ".join(f"rank {r}: {n}" for r, n in enumerate(counts))
    return [
        f"ranks do different numbers of steps ({told}): do they have "
        "different numbers of batches?"
    ]


def _sizes_of_batches(several: Sequence[KeptDigests]) -> list[str]:
    """Compare how many examples the models of ranks were given."""
    for call, sizes in enumerate(zip(*(r.batches for r in several)), 1):
        if len(set(sizes)) > 1:
            told = ", ".join(f"rank {r}: {n}" for r, n in enumerate(sizes))
            return [
                f"forward {call}: ranks have batches of different sizes "
                f"({told}); a mean over each rank's examples, averaged over "
                "ranks, is not the mean over all"
            ]
    return []


def _without_gradients(one: KeptDigests) -> list[str]:
    """Return a line if there is nothing to compare but zeros."""
    for step, gradients in enumerate(one.gradients, 1):
        if gradients and not any(found.length for found in gradients.values()):
            return [
                f"gradients of step {step} are all 0 on one rank, so that "
                "they compare equal whatever the ranks do: does the loss "
                "depend on the parameters?"
            ]
    return []


def _among_ranks(several: Sequence[KeptDigests]) -> list[str]:
    """Compare what ranks have that have the same parameters.

    The stages of a pipeline have different ones.
    """
    steps = min(len(rank.parameters) for rank in several)
    for step in range(steps):
        for what in ("gradients", "parameters"):
            kept = [getattr(rank, what)[step] for rank in several]
            for rank, found in enumerate(kept):
                wrong = differing(kept[0], found)
                if wrong and _shapes(found) == _shapes(kept[0]):
                    return [
                        f"{what} of step {step + 1}: rank {rank} differs from "
                        f"rank 0 in {len(wrong)} of {len(kept[0])}, first in "
                        f"{wrong[0]} {kept[0][wrong[0]].shape}",
                        _why_apart(what, len(wrong) == len(kept[0])),
                    ]
    return []


def _shapes(digests: Mapping[str, Digest]) -> dict[str, tuple[int, ...]]:
    return {name: one.shape for name, one in digests.items()}


def _why_apart(what: str, are_all: bool) -> str:
    if what == "gradients":
        if are_all:
            return (
                "it looks like: the model is not wrapped, so that gradients "
                "are not averaged; or it was made from another seed before "
                "it was wrapped by hand; or some ranks change their "
                "gradients after these are averaged"
            )
        return (
            "it looks like: some parameters are used outside of the wrapped "
            "model's forward, or are changed after their allreduce"
        )
    return (
        "it looks like: something is done to gradients or parameters by some "
        "ranks alone, after backward"
    )


def _with_one(one: KeptDigests, several: Sequence[KeptDigests]) -> list[str]:
    """Compare the gradients of several ranks with those of one."""
    for step in range(steps_compared(one, several)):
        found: dict[str, Digest] = {}
        for rank in reversed(several):
            found |= rank.gradients[step]  # stages have different ones
        expected = one.gradients[step]
        wrong = differing(expected, found)
        if not wrong:
            continue
        line = (
            f"gradients of step {step + 1}: {len(several)} ranks differ from "
            f"one in {len(wrong)} of {len(expected)}, first in {wrong[0]}"
        )
        factor = common_factor(expected, found, wrong)
        if factor is None:
            return [
                line,
                "it looks like: another global batch (--one gives one rank "
                "the batch of all); or other random numbers, as of dropout; "
                "or batch normalization, by the statistics of a rank's own "
                "examples; or an evaluation inside of the step",
            ]
        return [
            line,
            f"all of these are {factor:.4g} times as long as with one",
            _why_scaled(factor, len(several)),
        ]
    return []


def _why_scaled(factor: float, ranks: int) -> str:
    if abs(factor * ranks - 1) < SAME_WITHIN:
        return (
            "it looks like: the loss is divided by the number of ranks, and "
            "DistributedDataParallel divides again; or it is not divided by "
            "the number of micro-batches, of which several ranks have fewer "
            "each"
        )
    if abs(factor / ranks - 1) < SAME_WITHIN:
        return (
            "it looks like: gradients are added up and not averaged, or the "
            "loss is not divided by the number of micro-batches"
        )
    return (
        "it looks like: the loss is divided by another number than with one "
        "rank, such as that of micro-batches"
    )


def differing(
    one: Mapping[str, Digest], other: Mapping[str, Digest]
) -> list[str]:
    """Return the names whose digests differ, or that one lacks."""
    return [
        name
        for name in one
        if name not in other or not _are_near(one[name], other[name])
    ]


def _are_near(one: Digest, other: Digest) -> bool:
    scale = SAME_WITHIN * max(one.length, other.length)
    return (
        one.shape == other.shape
        and abs(one.length - other.length) <= scale
        and abs(one.along - other.along) <= scale
    )


def common_factor(
    one: Mapping[str, Digest],
    other: Mapping[str, Digest],
    names: Sequence[str],
) -> float | None:
    """Return the factor between digests, if it is the same for all names."""
    known = [n for n in names if n in other and one[n].length]
    if len(known) < len(names):
        return None
    factor = other[known[0]].length / one[known[0]].length
    for name in known:
        scaled = Digest(
            one[name].shape,
            factor * one[name].length,
            factor * one[name].along,
        )
        if not _are_near(scaled, other[name]):
            return None
    return factor
