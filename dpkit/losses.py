"""What a loss makes of its examples: their sum, or their mean.

Gradients that are summed over devices need a sum, or the loss of each
example; those of micro-batches a mean in which all examples count alike.
PyTorch's own losses say what they are. Of others it is seen on the first
batch, from the loss of two parts of it and that of both together::

    rows        0 1 2      3 4        0 1 2 3 4
    a sum        6.0       5.0          11.0        6.0 + 5.0
    a mean       2.0       2.5           2.2       (3 · 2.0 + 2 · 2.5) / 5

The network runs once: the loss alone is computed again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
from torch import Tensor

Loss = Callable[[Any, Tensor], Tensor]
DIVIDED = ("mean", "batchmean")
LEFT_OUT = -100  # the label that PyTorch's losses leave out by default


def check_sum(loss: Loss) -> None:
    """Refuse a loss that says that it is a mean.

    Raises:
        ValueError: it does.

    Example:
        >>> from functools import partial
        >>> from torch.nn import functional as F
        >>> check_sum(partial(F.cross_entropy, reduction="none"))
        >>> check_sum(F.cross_entropy)
        Traceback (most recent call last):
        ValueError: the loss is a mean over examples (reduction: 'mean'); \
reduction="none" gives that of each
    """
    reduction = _setting(loss, "reduction")
    if reduction in DIVIDED:
        raise ValueError(
            f"the loss is a mean over examples (reduction: {reduction!r}); "
            'reduction="none" gives that of each'
        )


def tried_as_sum(loss: Loss) -> Loss:
    """Return the loss, which raises ValueError where it turns out a mean.

    A loss that gives one number for several rows is computed again for each
    half of them; not where the outputs do not have one row for each row of
    labels, for then their halves are not known.
    """

    def tried(outputs: Tensor, y: Tensor) -> Tensor:
        total = loss(outputs, y)
        several = isinstance(outputs, Tensor) and len(y) > 1
        in_rows = several and outputs.shape[:1] == y.shape[:1]
        if in_rows and _is_number(total):
            _check_halves(loss, outputs.detach(), y, total)
        return total

    return tried


@torch.no_grad()
def _check_halves(
    loss: Loss, outputs: Tensor, y: Tensor, total: Tensor
) -> None:
    """Refuse a loss nearer to the mean of its halves than to their sum.

    So rounding does not make a sum a mean.
    """
    rows = [len(y) // 2, len(y) - len(y) // 2]
    halves = map(loss, outputs.split(rows), y.split(rows))
    both, first, second = _numbers(total, *halves)
    mean = (rows[0] * first + rows[1] * second) / sum(rows)
    is_sum = abs(both - (first + second)) <= abs(both - mean)
    if isfinite(both) and not is_sum and not _draws(loss, outputs, y, total):
        raise ValueError(
            "the loss is a mean over examples, not their sum (rows: "
            f"{sum(rows)}, loss: {both:.4g}, of their halves: {first:.4g} "
            f"and {second:.4g}); give the loss of each example"
        )


def check_mean(loss: Loss) -> None:
    """Refuse a loss that says that it is a sum, or that examples weigh unlike.

    Raises:
        ValueError: it does.

    Example:
        >>> from torch import nn
        >>> check_mean(nn.CrossEntropyLoss())
        >>> check_mean(nn.CrossEntropyLoss(ignore_index=0))
        Traceback (most recent call last):
        ValueError: the loss divides by what it does not leave out \
(ignore_index: 0); divide the sum by len(y)
    """
    if _setting(loss, "reduction") == "sum":
        raise ValueError(
            "the loss is a sum over examples (reduction: 'sum'); it has to "
            "be a mean"
        )
    left_out, weight = _setting(loss, "ignore_index"), _weight(loss)
    if left_out is not None and weight is not None:
        raise ValueError(
            "the loss divides by the weights of the examples (shape of "
            f"weight: {tuple(weight.shape)}); divide the sum by len(y)"
        )
    if left_out not in (None, LEFT_OUT):
        raise ValueError(
            "the loss divides by what it does not leave out (ignore_index: "
            f"{left_out}); divide the sum by len(y)"
        )


def check_labels(loss: Loss, y: Tensor) -> None:
    """Refuse labels that PyTorch's losses leave out unless told otherwise.

    Args:
        loss: The loss, which may show the label that it leaves out.
        y: The labels of the whole batch, of any shape.

    Raises:
        ValueError: some of them are left out.

    Example:
        >>> from torch.nn import functional as F
        >>> check_labels(F.cross_entropy, torch.tensor([0, 2, -100, 1]))
        Traceback (most recent call last):
        ValueError: the loss divides by the labels that it does not leave out \
(ignore_index: -100, labels: 4, left out: 1); divide the sum by len(y)
    """
    left_out = _setting(loss, "ignore_index")
    if left_out is None or not _has_numbers(y):
        return
    count = int((y == left_out).sum())
    if count:
        raise ValueError(
            "the loss divides by the labels that it does not leave out "
            f"(ignore_index: {left_out}, labels: {y.numel()}, left out: "
            f"{count}); divide the sum by len(y)"
        )


def tried_as_mean(loss: Loss) -> Loss:
    """Return the loss, which raises ValueError where it is no plain mean.

    Each micro-batch is compared with the one before, unless its outputs have
    neither a row for each row of labels nor one for each label. A loss that
    says that it is a mean is not tried: ``check_labels`` sees to what it
    leaves out.
    """
    if _setting(loss, "reduction") in DIVIDED and _weight(loss) is None:
        return loss
    before: list[tuple[Tensor, Tensor, Tensor]] = []

    def tried(outputs: Tensor, y: Tensor) -> Tensor:
        mean = loss(outputs, y)
        rows = y.shape[:1], (y.numel(),)
        in_rows = isinstance(outputs, Tensor) and outputs.shape[:1] in rows
        if in_rows and _is_number(mean):
            part = outputs.detach(), y, mean.detach()
            if before:
                _check_pair(loss, before.pop(), part)
            before.append(part)
        return mean

    return tried


@torch.no_grad()
def _check_pair(
    loss: Loss,
    one: tuple[Tensor, Tensor, Tensor],
    other: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Refuse a loss that is not, but for rounding, the mean of its parts."""
    outputs, y, parts = zip(one, other)
    rows = [len(labels) for labels in y]
    whole = loss(torch.cat(outputs), torch.cat(y))
    both, first, second = _numbers(whole, *parts)
    mean = (rows[0] * first + rows[1] * second) / sum(rows)
    tolerance = torch.finfo(whole.dtype).eps ** 0.5
    alike = abs(both - mean) <= tolerance * max(abs(first), abs(second))
    if isfinite(both) and not alike and not _draws(loss, *one):
        raise ValueError(
            "the loss is no mean in which all examples count alike (rows: "
            f"{sum(rows)}, loss: {both:.4g}, of {rows[0]} and {rows[1]} of "
            f"them: {first:.4g} and {second:.4g})"
        )


def _draws(loss: Loss, outputs: Tensor, y: Tensor, found: Tensor) -> bool:
    """Tell whether a loss is another one each time, by random numbers."""
    return not torch.isclose(loss(outputs, y), found, equal_nan=True)


def _setting(loss: Loss, name: str) -> Any:
    """Return what a loss was told, or its default; None if it is not seen.

    That of PyTorch's modules is an attribute, that of its functions, also
    with some arguments filled in, a parameter.
    """
    if hasattr(loss, name):
        return getattr(loss, name)
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):  # a built-in function shows none
        return None
    default = parameters[name].default if name in parameters else None
    return None if default is inspect.Parameter.empty else default


def _weight(loss: Loss) -> Tensor | None:
    """Return the weights of a loss, if it has some that are seen."""
    weight: Tensor | None = _setting(loss, "weight")
    return weight


def _is_number(found: Tensor) -> bool:
    return found.dim() == 0 and _has_numbers(found)


def _has_numbers(found: Tensor) -> bool:
    """Tell whether a tensor's values are computed, as well as its shape."""
    return not getattr(found, "backing", found).is_meta


def _numbers(*found: Tensor) -> list[float]:
    """Return the values of tensors without dimensions; waits once."""
    numbers: list[float] = torch.stack(found).tolist()
    return numbers
