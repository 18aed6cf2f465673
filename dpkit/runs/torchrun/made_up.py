"""Values that are made up, where a script reads what has none.

With ``--meta`` there are no values. A script that prints its loss is given a
number, so that it goes on::

    a number that is read        1.0
    an integer                   1
    a truth value                False
    a tensor on the CPU          these, everywhere
    a copy on the CPU            the same, if it is not large

The host waits as it would. A script whose next steps depend on such a number
may do what it would not do; the report says that numbers were made up.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.amp import GradScaler

from dpkit.runs.cuda_names.not_modelled import note
from dpkit.sim.changes import replaced, wrapped
from dpkit.sim.memory import has_values, keep_values, values_of
from dpkit.sim.operators import operations
from dpkit.sim.tensors import plain
from dpkit.sim.tensors import tensor as tensors

MOST_BYTES = 2 << 30  # of memory that is made for what a script reads
MOST_COPIED = 16 << 20  # bytes; larger copies on the CPU have no values
NOTE_OF_NUMBERS = (
    "--meta: numbers that the script reads are made up, and so is what it "
    "writes to files (its losses and checkpoints, for example)"
)


def make_up_values(stack: ExitStack) -> None:
    """Allow a script to read what has no values, until a stack ends."""
    changes: list[tuple[Any, str, Any]] = [
        (operations, "require_values", _make_up),
        # The gradients of a step are taken for finite.
        (GradScaler, "_maybe_opt_step", _always_step),
    ]
    for owner, name, value in changes:
        stack.callback(replaced(owner, name, value).apply())
    stack.callback(wrapped(tensors, "_wrapped", _copied_to_cpu).apply())


def _copied_to_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives values to results on the CPU."""

    def wrap(out: Any, device: torch.device | None) -> Any:
        is_without = (
            device is None
            and isinstance(out, torch.Tensor)
            and out.device.type == "meta"
            and out.nbytes <= MOST_COPIED
        )
        if not is_without:
            return original(out, device)
        known = values_of(out)
        if known is not None:
            return known.clone()
        note(NOTE_OF_NUMBERS)
        number = out.dtype != torch.bool
        return torch.full(out.shape, number, dtype=out.dtype)

    return wrap


def _make_up(x: torch.Tensor) -> None:
    """Give values to the memory that a tensor is in.

    Raises:
        RuntimeError: there are too many.
    """
    backing = plain(x)
    if has_values(backing):
        return
    storage = backing.untyped_storage()
    if storage.nbytes() > MOST_BYTES or backing.is_conj() or backing.is_neg():
        raise operations.no_values(x)
    note(NOTE_OF_NUMBERS)
    whole = torch.empty(0, dtype=backing.dtype, device="meta").set_(storage)
    number = backing.dtype != torch.bool
    keep_values(whole, torch.full(whole.shape, number, dtype=whole.dtype))


def _always_step(
    self: GradScaler, optimizer: Any, state: Any, *args: Any, **kwargs: Any
) -> Any:
    return optimizer.step(*args, **kwargs)
