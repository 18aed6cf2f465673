"""The checks of the exercises on large batches."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from dpkit.lab.common.verdict import (
    Answer,
    require,
    require_reference,
    require_same,
    same,
)
from dpkit.lab.large_batches.results import steps_needed
from dpkit.lab.large_batches.runs import gradual_warmup


def check_warm_scheduler(answer: Answer) -> None:
    """The rates of all steps, those after the warm-up too."""
    for lr, k, num_steps in ((0.4, 4, 6), (0.3, 8, 3), (0.1, 1, 5)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
        scheduler = answer(optimizer, k, num_steps)
        words = f"it returned {scheduler!r}, not a scheduler of PyTorch"
        require(isinstance(scheduler, LRScheduler), words)
        case = f"rate {lr}, k = {k}, {num_steps} steps of warm-up"
        for step in range(num_steps + 3):
            found = optimizer.param_groups[0]["lr"]
            expected = gradual_warmup(step, num_steps, lr / k, lr)
            words = f"has the rate {found:.4g}, expected {expected:.4g}"
            require(same(found, expected), f"{case}: step {step} {words}")
            optimizer.step()  # which a scheduler expects before its own
            scheduler.step()


def check_steps_behind(answer: Answer) -> None:
    """Warm-ups of several lengths, one of them without a rise."""

    def steps_behind(k: int, W: int) -> float:
        return W - sum(gradual_warmup(t, W, 1.0, k) for t in range(W)) / k

    cases = (4, 10), (8, 128), (2, 1), (1, 7)
    words = "k = {0}, W = {1}"
    require_reference(answer, steps_behind, cases, words, "g")


def check_critical_batch(answer: Answer) -> None:
    """Two batches on each side of the critical one, in either order."""
    for (small, large), expected in (
        ((16, 256), (100.0, 64.0)),
        ((512, 32), (40.0, 128.0)),
        ((8, 16), (250.0, 2048.0)),
    ):
        few, many = (steps_needed(b, *expected) for b in (small, large))
        case = f"{small} rows take {few:g} steps and {large} take {many:g}"
        require_same(answer(small, few, large, many), expected, case)


def check_fastest_count(answer: Answer) -> None:
    """Where one device is best, where many are, and in between."""
    for per_device, critical, expected in (
        (1e-3, 4, 1),
        (2e-4, 64, 4),
        (1e-4, 256, 16),
        (1e-6, 64, 64),
    ):
        counts = (1, 2, 4, 8, 16, 32, 64)
        seconds = {k: 1e-3 + per_device * (k - 1) for k in counts}
        more = f"1 ms and {1e3 * per_device:g} ms for each further device"
        case = f"a step takes {more}, b = 16, the critical batch is {critical}"
        require_same(answer(seconds, 16, 100, critical), expected, case)
