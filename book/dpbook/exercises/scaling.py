"""Checks of the exercises on devices, on the wrapper and how it scales."""

from dataclasses import replace
from itertools import product
from math import ceil, log2

from dpbook.exercises.verdict import Answer, require, require_same, same
from dpkit.theory.hardware import ACCELERATORS, HOSTS
from dpkit.theory.hardware.costs import operation_seconds


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
            if operation_seconds(accelerator, 2 * n**3, 12 * n**2) > launch
        )
        case = f"{name} with launches of {1e6 * launch:g} µs"
        require_same(answer(accelerator, host), expected, case)


def check_speedups(answer: Answer) -> None:
    """Both kinds of scaling, from the same seconds."""
    both = {1: 4.0, 2: 5.0, 4: 8.0}, {3: 25.0, 8: 40.0, 1: 60.0}
    for seconds, weak in product(both, (True, False)):
        expected = {
            k: (k if weak else 1) * seconds[1] / t for k, t in seconds.items()
        }
        found = answer(seconds, weak)
        is_dict = isinstance(found, dict) and found.keys() == expected.keys()
        words = f"not a number for each of {list(expected)}"
        require(is_dict, f"it returned {found!r}, {words}")
        case = f"{'weak' if weak else 'strong'} scaling, seconds {seconds}"
        words = f"{case}: it returned {found}, expected {expected}"
        require(all(same(found[k], expected[k]) for k in expected), words)


def check_best_num_devices(answer: Answer) -> None:
    """Where one is best, where the square root is whole, where it is not."""
    for unsplit, split, added in (
        (1.0, 8.0, 9.0),
        (1.0, 64.0, 1.0),
        (0.0, 60.0, 4.0),
        (20.0, 56.0, 9.0),
        (5.0, 1000.0, 0.01),
    ):
        seconds = {
            k: unsplit + split / k + added * (k - 1) for k in range(1, 1000)
        }
        expected = min(seconds, key=lambda k: seconds[k])
        found = answer(unsplit, split, added)
        case = f"unsplit {unsplit}, split {split}, added {added}"
        words = f"{case}: it returned {found!r}, expected {expected}"
        require(found == expected, f"{words} ({seconds[expected]:.2f} s)")


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
