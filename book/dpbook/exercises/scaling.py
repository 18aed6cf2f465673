"""Checks of the exercises on devices, on the wrapper and how it scales."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import ceil, log2
from random import Random

from dpbook.exercises.verdict import Answer, require, require_same, same
from dpkit.sim.hardware import ACCELERATORS, HOSTS, operation_seconds


def check_crossover(answer: Answer) -> None:
    """The first size at which the device takes longer than the launch."""
    eager = HOSTS["eager"]
    slow = replace(eager, launch_seconds=10 * eager.launch_seconds)
    for name, host in product(("v100-pcie", "h100", "v100"), (eager, slow)):
        accelerator = ACCELERATORS[name]
        launch = host.launch_seconds
        expected = next(
            n
            for n in range(1, 100_000)
            if operation_seconds(
                accelerator, flops=2 * n**3, num_bytes=12 * n**2
            )
            > launch
        )
        case = f"{name} with launches of {1e6 * launch:g} µs"
        require_same(answer(accelerator, host), expected, case)


def check_pair_to_fuse(
    answer: Answer, more: Sequence[tuple[list[int], list[int], int]] = ()
) -> None:
    """Where the host decides, where the device does, and where both do."""
    random = Random(1)
    drawn = [random.randint(2, 30) for _ in range(9)]
    cases = (
        ([3, 3, 3, 3, 3], [1, 1, 1, 2], 10),
        ([40, 50, 60, 50], [4, 9, 6], 10),
        # Small operations, then two large ones: a launch counts more than
        # what is saved between the large ones, or less.
        ([3, 3, 3, 90, 90], [1, 1, 2, 8], 10),
        ([3, 3, 3, 90, 90], [1, 1, 2, 30], 10),
        # The large one keeps the device busy, so that launches do not count.
        ([90, 4, 5, 6], [2, 1, 3], 10),
        (drawn, [t // 3 for t in drawn[1:]], 12),
        *more,
    )
    for micros, saved, launch in cases:
        case = f"{micros}, saved {saved}, a launch of {launch} µs"
        found = answer(list(micros), list(saved), launch)
        pairs = range(len(saved))
        right = isinstance(found, int) and found in pairs
        why = f"not a position from 0 to {pairs[-1]}"
        require(right, f"{case}: it returned {found!r}, {why}")
        ends = [
            _end_of_fused(i, micros=micros, saved=saved, launch=launch)
            for i in pairs
        ]
        why = f"{case}: with the pair {found} fused the step ends after"
        require(
            ends[found] == min(ends),
            f"{why} {ends[found]} µs, where {min(ends)} are possible",
        )


def _end_of_fused(
    pair: int, *, micros: list[int], saved: list[int], launch: int
) -> int:
    """Return when the device has done all, with a pair fused into one."""
    both = micros[pair] + micros[pair + 1] - saved[pair]
    end = 0
    fused = [*micros[:pair], both, *micros[pair + 2 :]]
    for i, busy in enumerate(fused, start=1):
        end = max(i * launch, end) + busy
    return end


def check_rows_for(
    answer: Answer, more: Sequence[tuple[list[int], int]] = ()
) -> None:
    """Equal devices, unequal ones, and one that is better left idle."""
    cases = (
        ([3], 5),
        ([2, 2, 2], 7),
        ([1, 2], 9),
        ([1, 5], 3),
        ([3, 5, 11], 10),
        ([4, 7, 9, 30], 64),
        *more,
    )
    for micros, num_rows in cases:
        case = f"{num_rows} rows, {micros} µs a row"
        found = answer(list(micros), num_rows)
        right = isinstance(found, list) and len(found) == len(micros)
        why = f"{case}: it returned {found!r}, not a number for each device"
        require(right and all(isinstance(r, int) for r in found), why)
        given = f"{case}: it returned {found}"
        require(min(found) >= 0, f"{given}, and no device has fewer than 0")
        total = sum(found)
        require(total == num_rows, f"{given}, which are {total} rows")
        took = max(r * t for r, t in zip(found, micros))
        # One row after another goes where it ends first.
        ends = sorted(r * t for t in micros for r in range(1, num_rows + 1))
        least = ends[num_rows - 1]
        why = f"and the step takes {took} µs, where {least} are possible"
        require(took == least, f"{given}, {why}")


def check_speedups(
    answer: Answer, more: Sequence[dict[int, float]] = ()
) -> None:
    """Both kinds of scaling, from the same seconds."""
    runs = [{1: 4.0, 2: 5.0, 4: 8.0}, {3: 25.0, 8: 40.0, 1: 60.0}, *more]
    for seconds, weak in product(runs, (True, False)):
        expected = {
            k: (k if weak else 1) * seconds[1] / t for k, t in seconds.items()
        }
        found = answer(seconds, weak)
        is_dict = isinstance(found, dict) and found.keys() == expected.keys()
        why = f"not a number for each of {list(expected)}"
        require(is_dict, f"it returned {found!r}, {why}")
        case = f"{'weak' if weak else 'strong'} scaling, seconds {seconds}"
        why = f"{case}: it returned {found}, expected {expected}"
        require(all(same(found[k], expected[k]) for k in expected), why)


def check_best_num_devices(
    answer: Answer, more: Sequence[tuple[float, float, float]] = ()
) -> None:
    """Where one is best, where the square root is whole, where it is not."""
    for unsplit, split, added in (
        (1.0, 8.0, 9.0),
        (1.0, 64.0, 1.0),
        (0.0, 60.0, 4.0),
        (20.0, 56.0, 9.0),
        (5.0, 1000.0, 0.01),
        *more,
    ):
        seconds = {
            k: unsplit + split / k + added * (k - 1) for k in range(1, 1000)
        }
        expected = min(seconds, key=lambda k: seconds[k])
        found = answer(unsplit, split, added)
        case = f"unsplit {unsplit}, split {split}, added {added}"
        why = f"{case}: it returned {found!r}, expected {expected}"
        require(found == expected, f"{why} ({seconds[expected]:.2f} s)")


def check_replicate_seconds(answer: Answer) -> None:
    """One device, few and many; one message for each tensor, or for all."""
    sizes = [4000, 12, 800_000, 64]
    alpha = 1e-5
    beta = 1e-9
    ways = (False, True)
    for k, tree, together in product((1, 2, 4, 5, 8), ways, ways):
        num_messages = 1 if together else len(sizes)
        once = num_messages * alpha + sum(sizes) * beta
        expected = (ceil(log2(k)) if tree else k - 1) * once
        case = f"{k} devices, tree={tree}, together={together}"
        found = answer(sizes, k, alpha, beta, tree, together)
        require_same(found, expected, case, ".7f")
