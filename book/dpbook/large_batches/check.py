"""The checks of the exercises on large batches."""

import torch
from torch.optim.lr_scheduler import LRScheduler

from dpbook.exercises.verdict import Answer, require, same
from dpbook.large_batches.runs import gradual_warmup


def check_warm_scheduler(answer: Answer) -> None:
    """The rates of all steps, those after the warm-up too."""
    for lr, k, num_steps in ((0.4, 4, 6), (0.3, 8, 3), (0.1, 1, 5)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
        scheduler = answer(optimizer, k, num_steps)
        why = f"it returned {scheduler!r}, not a scheduler of PyTorch"
        require(isinstance(scheduler, LRScheduler), why)
        case = f"rate {lr}, k = {k}, {num_steps} steps of warm-up"
        for step in range(num_steps + 3):
            found = optimizer.param_groups[0]["lr"]
            expected = gradual_warmup(
                step, num_steps=num_steps, low=lr / k, high=lr
            )
            why = f"has the rate {found:.4g}, expected {expected:.4g}"
            require(same(found, expected), f"{case}: step {step} {why}")
            optimizer.step()  # which a scheduler expects before its own
            scheduler.step()
