"""Several ranks of a run: whether they agree with each other."""

from collections.abc import Mapping, Sequence
from functools import partial

from dpkit.runs.check import causes
from dpkit.runs.check.comparison import (
    Look,
    first_lines,
    nothing_compared,
    other_changes,
    other_moves,
    other_rates,
)
from dpkit.runs.check.digests import Digest
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.nearness import (
    SAME_WITHIN,
    Tolerance,
    common_factor,
    differing,
    tolerance,
)


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
    return [*compare_data(several), *_among_ranks(several)]


def compare_data(several: Sequence[Kept]) -> list[str]:
    """Return what differs in the data of ranks, and should not."""
    return [*_data_apart(several), *_sizes_of_batches(several)]


def ranks_agree(several: Sequence[Kept]) -> bool:
    """Return whether ranks have the same gradients and parameters.

    Where they do not, not all of them can have those of one.
    """
    is_flat = any(rank.is_flat for rank in several)
    return not is_flat and not _among_ranks(several)


def _data_apart(several: Sequence[Kept]) -> list[str]:
    """Compare which part of the data the samplers of ranks divide."""
    for number, parts in enumerate(zip(*(rank.data for rank in several)), 1):
        if len(set(parts)) > 1:
            return [
                f"DistributedSampler {number} has other data on some ranks: "
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
    expected = _shapes(several[0].digests[0].before)
    looks: list[Look] = []
    for rank in range(1, len(several)):
        if _shapes(several[rank].digests[0].before) != expected:
            continue
        looks += [
            partial(_changes_apart, several, rank),
            partial(_buffers_apart, several, rank),
            partial(_gradients_apart, several, rank),
            partial(_rates_apart, several, rank),
            partial(_parameters_apart, several, rank),
        ]
    return first_lines(looks, steps)


def _shapes(digests: Mapping[str, Digest]) -> dict[str, tuple[int, ...]]:
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
    wrong = other_changes(several[0], several[rank], step)
    if not wrong:
        return []
    return [
        f"parameters before step {step + 1}: rank {rank} differs from rank 0 "
        f"in {len(wrong)} of {len(several[0].digests[step].before)}, first in "
        f"{wrong[0]}, though they agreed after step {step}",
        "it looks like: something is done to parameters by some ranks alone, "
        "outside of the optimizer",
    ]


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
    wrong = other_rates(expected, found)
    if not wrong:
        return []
    return [
        f"learning rates of step {step + 1}: {found[wrong[0]]:.6g} on rank "
        f"{rank}, {expected[wrong[0]]:.6g} on rank 0",
        "it looks like: the ranks' schedules take other numbers of steps, or "
        "some ranks alone have loaded a schedule's state",
    ]


def _parameters_apart(
    several: Sequence[Kept], rank: int, step: int
) -> list[str]:
    zero, other = several[0].digests[step], several[rank].digests[step]
    exact = Tolerance(0 if several[0].averaged else SAME_WITHIN, 0)
    begun = differing(zero.before, other.before, exact)
    if begun and not step:
        return [
            f"parameters before the first step: rank {rank} differs from "
            f"rank 0 in {len(begun)} of {len(zero.before)}, first in "
            f"{begun[0]} {zero.before[begun[0]].shape}",
            "it looks like: each rank makes them from a seed of its own, or "
            "a checkpoint that some ranks alone load; "
            "DistributedDataParallel sends those of rank 0 when it wraps a "
            "model, and not later",
        ]
    wrong = differing(zero.parameters, other.parameters, exact)
    wrong = wrong or other_moves(zero, other, tolerance())
    if not wrong:
        return []
    return [
        f"parameters of step {step + 1}: rank {rank} differs from rank 0 in "
        f"{len(wrong)} of {len(zero.parameters)}, first in {wrong[0]} "
        f"{zero.parameters[wrong[0]].shape}",
        causes.parameters_apart(several),
    ]
