"""A run with checkpoints: resumed from one, and saving more."""

import sys
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from tqdm import tqdm

from dpbook.job.checkpoints import Checkpoints, unpack
from dpbook.job.run import Run
from dpbook.job.state_forms import not_finite


def resume(run: Run, checkpoints: Checkpoints) -> list[str]:
    """Load the newest good checkpoint on rank 0's disk, on every rank.

    Rank 0 locks the folder until it ends, and returns a line for each file
    that was refused and for the one that was loaded. All ranks raise a
    ValueError if the folder belongs to another job or to other runs.
    """
    lines: list[str] = []
    message: list[Any] = [b"", ""]  # what to load, or why nothing can be
    if run.ranks.rank == 0:
        try:
            lines = checkpoints.lock()
            found = checkpoints.newest(run.check)
            message[0] = found.content
            lines += [f"refused: {reason}" for reason in found.refused]
            if found.path:
                lines.append(f"resumed from {found.path}")
        except (RuntimeError, ValueError) as error:
            message[1] = str(error)
    dist.broadcast_object_list(message, 0, device=run.ranks.device)
    content, refusal = message
    if refusal:
        raise ValueError(refusal)
    if content:
        _, state = unpack(content)
        run.load(state)
        then = state["world_size"]
        now = run.ranks.world_size
        if lines and then != now:
            lines[-1] += (
                f", begun on another number of ranks (then: {then}, now: "
                f"{now}): equal to rounding, not to the bit"
            )
    return lines


def train_to(
    run: Run, num_steps: int, checkpoints: Checkpoints | None, every: int
) -> None:
    """Train a run up to a step, and save checkpoints on the way.

    Rank 0 saves. The others do not wait for it before the next step, in which
    they reduce gradients together.

    Args:
        run: The run, at the step at which it goes on.
        num_steps: The number of steps that it has taken in the end.
        checkpoints: Where they are saved. None: nowhere.
        every: After how many steps one is saved. The last step is saved, too.

    Raises:
        FloatingPointError: when a save is due, also where none is asked for,
            a parameter or a momentum is infinite or NaN. It is not saved.
    """
    steps: Iterable[int] = range(run.step, num_steps)
    writes = run.ranks.rank == 0
    if writes and sys.stderr.isatty():
        steps = tqdm(steps, initial=run.step, total=num_steps, unit="step")
    for _ in steps:
        run.take_step()
        due = run.step % every == 0 or run.step == num_steps
        if due:
            _check_finite(run)
        if writes and due and checkpoints:
            path = checkpoints.save(run.step, run.state())
            tqdm.write(f"step {run.step} of {num_steps}: saved {path}")


def _check_finite(run: Run) -> None:
    """Raise a FloatingPointError on all ranks, if the run has diverged."""
    if found := not_finite(run.state()):
        raise FloatingPointError(
            f"the run has diverged (step: {run.step}, {found}); begin again "
            "with a smaller learning rate"
        )
