"""What a loss makes of its examples: their sum, or their mean.

Gradients that are summed over devices need a sum, or the loss of each
example; those of micro-batches a mean in which all examples count alike.
PyTorch's own losses say what they are. Others are tried on the first batch:
the loss of two parts of it is compared with that of both together::

    rows        0 1 2      3 4        0 1 2 3 4
    a sum        6.0       5.0          11.0        6.0 + 5.0
    a mean       2.0       2.5           2.2       (3 · 2.0 + 2 · 2.5) / 5

The network runs once: the loss alone is computed again. Parts are compared
where outputs have a row for each label, and the loss is one number. Each
function here raises ValueError for a loss of the wrong kind.
"""

import inspect
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpkit.arguments import check_function

Loss = Callable[[Any, Tensor], Tensor]
DIVIDED = ("mean", "batchmean")
LEFT_OUT = -100  # the label that PyTorch's losses leave out by default


def check_sum(loss: Loss) -> None:
    """Refuse a loss that says that it is a mean."""
    _check_called(loss)
    reduction = _setting(loss, "reduction")
    if reduction in DIVIDED:
        raise ValueError(
            f"the loss is a mean over examples (reduction: {reduction!r}); "
            'reduction="none" gives that of each'
        )


def tried_as_sum(loss: Loss) -> Loss:
    """Wrap a loss that is to be a sum over examples, and check its values.

    What is returned gives the values that ``loss`` gives. It raises ValueError
    where one of a batch is nearer to the mean of those of its two halves than
    to their sum.
    """

    def tried(outputs: Tensor, y: Tensor) -> Tensor:
        total = loss(outputs, y)
        _check_found(total)
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
    """Refuse a loss nearer to the mean of its halves than to their sum."""
    rows = [len(y) // 2, len(y) - len(y) // 2]
    halves = map(loss, outputs.split(rows), y.split(rows))
    both, first, second = torch.stack([total, *halves]).tolist()
    mean = (rows[0] * first + rows[1] * second) / sum(rows)
    # 2.25 of halves 2.0 and 2.5: far from the sum 4.5, at the mean 2.25.
    is_sum = abs(both - (first + second)) <= abs(both - mean)
    if isfinite(both) and not is_sum and not _draws(loss, outputs, y, total):
        raise ValueError(
            "the loss is a mean over examples, not their sum (rows: "
            f"{sum(rows)}, loss: {both:.4g}, of their halves: {first:.4g} "
            f"and {second:.4g}); give the loss of each example"
        )


def check_mean(loss: Loss) -> None:
    """Refuse a loss that says that it is a sum or weighs examples."""
    _check_called(loss)
    if _setting(loss, "reduction") == "sum":
        raise ValueError(
            "the loss is a sum over examples (reduction: 'sum'); it has to "
            "be a mean"
        )
    left_out = _setting(loss, "ignore_index")
    weight = _setting(loss, "weight")
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


def _check_called(loss: Loss) -> None:
    """Refuse anything but a function; a class such as nn.MSELoss is none.

    A class can be called, too, with settings in place of outputs and labels.
    """
    check_function("loss", loss)
    if isinstance(loss, type):
        raise TypeError(
            f"not a loss (loss: the class {loss.__name__}, which has to be "
            "called)"
        )


def check_one_number(found: Tensor) -> None:
    """Refuse a loss that is not one number, for each has to be a mean."""
    _check_found(found)
    if found.dim():
        raise ValueError(
            f"the loss is not one number (shape: {tuple(found.shape)}); "
            "it has to average over examples"
        )


def _check_found(found: Tensor) -> None:
    """Refuse what a loss returned, unless it is a tensor."""
    if not isinstance(found, Tensor):
        raise TypeError(
            f"the loss is not a tensor (returned: {found!r}); autograd "
            "goes back from tensors alone"
        )


def check_labels(loss: Loss, y: Tensor) -> None:
    """Refuse a batch with labels that the loss leaves out of its mean.

    They are those equal to its ``ignore_index``, -100 unless told otherwise.
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
    """Wrap a loss that is to be a mean over examples, and check its values.

    What is returned gives the values that ``loss`` gives. It raises ValueError
    where one of two micro-batches together, a micro-batch and the one before,
    is not the mean of both, each by its number of examples. A loss of
    PyTorch's that says that it is a mean comes back as it is.
    """
    # check_labels finds the labels that a mean of PyTorch's leaves out.
    says_mean = _setting(loss, "reduction") in DIVIDED
    if says_mean and _setting(loss, "weight") is None:
        return loss
    before: Part | None = None

    def tried(outputs: Tensor, y: Tensor) -> Tensor:
        nonlocal before
        mean = loss(outputs, y)
        _check_found(mean)
        rows = y.shape[:1], (y.numel(),)
        in_rows = isinstance(outputs, Tensor) and outputs.shape[:1] in rows
        if in_rows and _is_number(mean):
            part = Part(outputs.detach(), y, mean.detach())
            if before is not None:
                _check_pair(loss, before, part)
            before = part
        return mean

    return tried


class Part(NamedTuple):
    """A micro-batch at the end of the network, and its loss."""

    outputs: Tensor
    y: Tensor
    mean: Tensor


@torch.no_grad()
def _check_pair(loss: Loss, one: Part, other: Part) -> None:
    """Refuse a loss that is not, up to rounding, the mean of its parts."""
    outputs, y, parts = zip(one, other)
    rows = [len(labels) for labels in y]
    whole = loss(torch.cat(outputs), torch.cat(y))
    both, first, second = torch.stack([whole, *parts]).tolist()
    mean = (rows[0] * first + rows[1] * second) / sum(rows)
    # In float32, parts may differ by 3.5e-4 of the larger one, by rounding.
    tolerance = torch.finfo(whole.dtype).eps ** 0.5
    alike = abs(both - mean) <= tolerance * max(abs(first), abs(second))
    if isfinite(both) and not alike and not _draws(loss, *one):
        raise ValueError(
            "the loss is no mean in which all examples count alike (rows: "
            f"{sum(rows)}, loss: {both:.4g}, of {rows[0]} and {rows[1]} of "
            f"them: {first:.4g} and {second:.4g})"
        )


def _draws(loss: Loss, outputs: Tensor, y: Tensor, found: Tensor) -> bool:
    """Return whether a loss draws random numbers: its value changes."""
    return not torch.isclose(loss(outputs, y), found, equal_nan=True)


def _setting(loss: Loss, name: str) -> Any:
    """Return a loss's argument, or its default; None if it is not known."""
    if hasattr(loss, name):
        return getattr(loss, name)
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):  # a built-in function shows none
        return None
    default = parameters[name].default if name in parameters else None
    return None if default is inspect.Parameter.empty else default


def _is_number(found: Tensor) -> bool:
    return found.dim() == 0 and _has_numbers(found)


def _has_numbers(found: Tensor) -> bool:
    """Return whether a tensor's values are computed, as well as its shape."""
    return not getattr(found, "backing", found).is_meta
