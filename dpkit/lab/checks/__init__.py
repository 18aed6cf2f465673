"""The checks of the exercises.

An exercise in a chapter is a stub, the line ``check(stub)``, and a solution
that the page hides. A check is found by the name of the function that it is
given. It runs the answer on inputs that catch the usual mistakes, on simulated
devices, and prints the verdict::

    allreduce_by_parts: not yet (8 elements on 2 devices: rank 0 is wrong …)
    allreduce_by_parts: solved
"""

from __future__ import annotations

from collections.abc import Callable

from dpkit.lab.checks.collectives import (
    check_clip_shards,
    check_large_broadcast,
    check_sends_first,
    check_size_that_splits,
)
from dpkit.lab.checks.data_parallelism import (
    check_accuracies_by_rate,
    check_accuracy_on_all,
    check_allreduce_by_parts,
    check_train_scaled,
)
from dpkit.lab.checks.data_parallelism_concise import (
    check_best_num_devices,
    check_replicate_seconds,
    check_shard_losses,
    check_speedups,
)
from dpkit.lab.checks.devices import (
    check_crossover,
    check_largest_batch,
    check_overlapped,
    check_seconds_of,
)
from dpkit.lab.checks.large_batches import (
    check_critical_batch,
    check_fastest_count,
    check_steps_behind,
    check_warm_scheduler,
)
from dpkit.lab.checks.layer_partitioning import (
    check_gradient_norm,
    check_least_width,
    check_likeliest_words,
    check_sequence_parallel_norm,
)
from dpkit.lab.checks.network_partitioning import (
    check_accumulate,
    check_best_count,
    check_micro_batches_needed,
    check_one_forward_one_backward,
)
from dpkit.lab.checks.overlap import (
    check_accumulated_step,
    check_ends_of_buckets,
    check_fill_buckets,
    check_server_seconds,
)
from dpkit.lab.checks.practice import (
    check_all_finite,
    check_exact_accuracy,
    check_loss_factors,
    check_merged_statistics,
)
from dpkit.lab.checks.splitting import (
    check_least_devices,
    check_rows_to_hide,
)
from dpkit.lab.checks.verdict import Answer, NotYet

CHECKS: dict[str, Callable[[Answer], None]] = {
    "seconds_of": check_seconds_of,
    "overlapped": check_overlapped,
    "crossover": check_crossover,
    "largest_batch": check_largest_batch,
    "train_scaled": check_train_scaled,
    "accuracies_by_rate": check_accuracies_by_rate,
    "allreduce_by_parts": check_allreduce_by_parts,
    "accuracy_on_all": check_accuracy_on_all,
    "speedups": check_speedups,
    "best_num_devices": check_best_num_devices,
    "shard_losses": check_shard_losses,
    "replicate_seconds": check_replicate_seconds,
    "micro_batches_needed": check_micro_batches_needed,
    "one_forward_one_backward": check_one_forward_one_backward,
    "accumulate": check_accumulate,
    "best_count": check_best_count,
    "sequence_parallel_norm": check_sequence_parallel_norm,
    "least_width": check_least_width,
    "gradient_norm": check_gradient_norm,
    "likeliest_words": check_likeliest_words,
    "rows_to_hide": check_rows_to_hide,
    "least_devices": check_least_devices,
    "size_that_splits": check_size_that_splits,
    "large_broadcast": check_large_broadcast,
    "sends_first": check_sends_first,
    "clip_shards": check_clip_shards,
    "ends_of_buckets": check_ends_of_buckets,
    "fill_buckets": check_fill_buckets,
    "accumulated_step": check_accumulated_step,
    "server_seconds": check_server_seconds,
    "loss_factors": check_loss_factors,
    "merged_statistics": check_merged_statistics,
    "exact_accuracy": check_exact_accuracy,
    "all_finite": check_all_finite,
    "warm_scheduler": check_warm_scheduler,
    "steps_behind": check_steps_behind,
    "critical_batch": check_critical_batch,
    "fastest_count": check_fastest_count,
}


def check(answer: Answer) -> None:
    """Print whether an answer solves its exercise, and if not, why.

    Args:
        answer: A function with the name that the exercise gives it.

    Raises:
        TypeError: the answer is not a function, but perhaps its result.
        ValueError: no exercise asks for a function of this name.

    Example:
        >>> from dpkit.lab.checks import check
        >>> def accuracy_on_all(net, X, y, device_params, devices):
        ...     return 0.5
        >>> check(accuracy_on_all)  # doctest: +NORMALIZE_WHITESPACE
        accuracy_on_all: not yet (the accuracy is 5/7; devices: 1, returned:
        0.5)
    """
    why = failure(answer)
    verdict = "solved" if why is None else f"not yet ({why})"
    print(f"{answer.__name__}: {verdict}")


def failure(answer: Answer) -> str | None:
    """Return why ``answer`` does not solve its exercise; None if it does."""
    if not hasattr(answer, "__name__"):
        raise TypeError(f"check takes the function itself (given: {answer!r})")
    name = answer.__name__
    if name not in CHECKS:
        raise ValueError(
            f"no exercise has this name (name: {name!r}, known: "
            f"{', '.join(CHECKS)})"
        )
    try:
        CHECKS[name](answer)
    except NotYet as error:
        return str(error)
    except Exception as error:
        return f"it raised {type(error).__name__}: {error}"
    return None
