"""What CUDA takes and the CPU's kernels do not.

``ctc_loss`` takes lengths from the CPU for what lies on a GPU, and ``histc``
takes integers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name of each operation, its kernel and its dispatch key."""
    yield "ctc_loss.Tensor", ctc_loss, "AutogradPrivateUse1"


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *options: Any,
) -> Tensor:
    """Stand in for ``torch.nn.functional.ctc_loss`` with tensors of lengths.

    As on CUDA the host reads the lengths, wherever they lie.

    Args:
        log_probs: Shape (steps, b, classes).
        targets: Shape (b, most labels), or all labels in a row.
        input_lengths: Shape (b,).
        target_lengths: Shape (b,).
        options: Blank, reduction and zero_infinity.

    Returns:
        Shape (b,), or () if it is reduced.
    """
    lengths = input_lengths.tolist(), target_lengths.tolist()
    loss: Tensor = aten.ctc_loss.IntList(
        log_probs, targets, *lengths, *options
    )
    return loss


def histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Count the integers in each of equal bins, as CUDA's kernel does.

    Args:
        x: Integers, of any shape.
        bins: How many bins there are.
        min: The lower end of the first.
        max: The upper end of the last, which it contains; if it equals
            ``min``, both are those of ``x``.

    Returns:
        Shape (bins,), of the dtype of ``x``.

    Raises:
        RuntimeError: there are no bins, or ``max`` is below ``min``.

    Example:
        >>> import torch
        >>> from dpkit.sim.as_on_cuda import histc
        >>> histc(torch.tensor([0, 1, 1, 4, 7]), bins=2, max=4)
        tensor([3, 1])
    """
    low, high = int(min), int(max)
    if low == high and x.numel():
        low, high = int(x.min()), int(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if bins < 1:
        raise RuntimeError("bins must be > 0")
    if high < low:
        raise RuntimeError("max must be larger than min")
    numbers = x.flatten().long()
    inside = numbers[(numbers >= low) & (numbers <= high)]
    places = ((inside - low) * bins // (high - low)).clamp_max(bins - 1)
    return torch.bincount(places, minlength=bins).to(x.dtype)


def run(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Any:
    """Run what the CPU has no kernel for.

    Args:
        func: The operation.
        args: What it is given.
        kwargs: The same, by name.
        error: What the CPU said; raised again if CUDA has no kernel either.
    """
    if func is aten.histc.default and args[0].dtype in INTEGERS:
        return histc(*args, **kwargs)
    raise error
