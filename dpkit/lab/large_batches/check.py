"""The checks of the exercises on large batches."""

from __future__ import annotations

from math import isclose
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from dpkit.lab.common.verdict import Answer, require
from dpkit.lab.large_batches.results import steps_needed
from dpkit.lab.large_batches.warmup import gradual_warmup


def check_warm_scheduler(answer: Answer) -> None:
    """The rates of all steps, those after the warm-up too."""
    for lr, k, num_steps in ((0.4, 4, 6), (0.3, 8, 3), (0.1, 1, 5)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
        scheduler = answer(optimizer, k, num_steps)
        require(
            isinstance(scheduler, LRScheduler),
            f"it returned {scheduler!r}, not a scheduler of PyTorch",
        )
        for step in range(num_steps + 3):
            found = optimizer.param_groups[0]["lr"]
            expected = gradual_warmup(step, num_steps, lr / k, lr)
            require(
                isclose(found, expected, rel_tol=1e-6),
                f"rate {lr}, k = {k}, {num_steps} steps of warm-up: step "
                f"{step} has the rate {found:.4g}, expected {expected:.4g}",
            )
            optimizer.step()  # which a scheduler expects before its own
            scheduler.step()


def check_steps_behind(answer: Answer) -> None:
    """Warm-ups of several lengths, one of them without a rise."""
    for k, num_steps in ((4, 10), (8, 128), (2, 1), (1, 7)):
        total = sum(
            gradual_warmup(t, num_steps, 1.0, k) for t in range(num_steps)
        )
        expected = num_steps - total / k
        _require_number(answer(k, num_steps), expected, k=k, W=num_steps)


def check_critical_batch(answer: Answer) -> None:
    """Two batches on each side of the critical one, in either order."""
    for (small, large), least, critical in (
        ((16, 256), 100.0, 64.0),
        ((512, 32), 40.0, 128.0),
        ((8, 16), 250.0, 2048.0),
    ):
        steps = [steps_needed(b, least, critical) for b in (small, large)]
        given = small, steps[0], large, steps[1]
        found = answer(*given)
        require(
            isinstance(found, (tuple, list))
            and len(found) == 2
            and all(
                isclose(a, b, rel_tol=1e-6)
                for a, b in zip(found, (least, critical))
            ),
            f"{small} rows take {steps[0]:g} steps and {large} take "
            f"{steps[1]:g}: it returned {found!r}, expected "
            f"{(least, critical)}",
        )


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
        found = answer(seconds, 16, 100, critical)
        require(
            found == expected,
            f"a step takes 1 ms and {1e3 * per_device:g} ms for each further "
            f"device, b = 16, the critical batch is {critical}: it returned "
            f"{found!r}, expected {expected}",
        )


def _require_number(found: Any, expected: float, **given: float) -> None:
    """Raise NotYet unless a number is as expected, up to rounding."""
    words = ", ".join(f"{name} = {value}" for name, value in given.items())
    require(
        isinstance(found, (int, float))
        and isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9),
        f"{words}: it returned {found!r}, expected {expected:g}",
    )
