"""Elsewhere: the check of the exercise that needs torch."""

import torch
from torch import Tensor

from dpbook.exercises.verdict import Answer, require


def check_pad_and_weigh(answer: Answer) -> None:
    """Batches that k divides, and batches that it does not."""
    torch.manual_seed(0)
    for b, k in ((8, 4), (257, 2), (6, 4), (1, 3)):
        X = torch.rand(b, 2, 3).double() + 1
        y = torch.arange(b) + 1
        case = f"{b} rows for {k} devices"
        found = answer(X, y, k)
        tensors = isinstance(found, tuple) and len(found) == 3
        require(tensors, f"{case}: it returned {found!r}, not three tensors")
        _check_rows(X, y, found=found, rows=b + -b % k, case=case)


def _check_rows(
    X: Tensor, y: Tensor, *, found: tuple[Tensor, ...], rows: int, case: str
) -> None:
    lengths = [len(part) for part in found]
    require(
        lengths == [rows] * 3,
        f"{case}: the lengths are {lengths}, expected {rows} of each",
    )
    padded, labels, weights = found
    kept = torch.equal(padded[: len(X)], X) and torch.equal(
        labels[: len(y)], y
    )
    require(kept, f"{case}: the first rows are not those of the batch")
    losses = padded.sum(dim=(1, 2)) + labels + 100.0
    expected = (X.sum(dim=(1, 2)) + y + 100.0).mean()
    mean = (losses * weights).sum() / weights.sum()
    require(
        bool(torch.isclose(mean, expected)),
        f"{case}: the weighted mean of losses is {mean:.3f}, "
        f"expected {expected:.3f}",
    )
