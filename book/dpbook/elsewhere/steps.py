"""Three steps of LeNet by ``dpkit``, from the start of all frameworks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dpbook.common.models import lenet
from dpbook.common.rounding import below
from dpbook.elsewhere.results import Array, Results
from dpkit import replicate, train_batch
from dpkit.tables import Table, table

NAMES = ("W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4")
RATE = 0.1
Batch = tuple[Tensor, Tensor]


def load_start(book: str | Path = ".") -> tuple[list[Tensor], list[Batch]]:
    """Return LeNet's parameters, and three batches (X, y) of 257 images.

    X: (257, 1, 28, 28), from 0 to 1; y: (257,), the classes. Parameters and
    images are in float64.
    """
    with np.load(Path(book) / "elsewhere" / "start.npz") as stored:
        params = [torch.tensor(stored[name]).double() for name in NAMES]
        X = torch.tensor(stored["X"]).double() / 255
        y = torch.tensor(stored["y"]).long()
    return params, list(zip(X, y))


def take_steps(
    params: Sequence[Tensor],
    batches: Sequence[Batch],
    devices: Sequence[torch.device],
) -> list[Array]:
    """Return all parameters of each rank after a step on each batch.

    They stand one behind another, as the listings of other frameworks keep
    them: W1, b1 and so on.
    """
    replicas = replicate(list(params), devices)
    loss = nn.CrossEntropyLoss(reduction="none")
    for X, y in batches:
        train_batch(lenet, loss, X, y, replicas, devices, lr=RATE)
    return [flat(replica) for replica in replicas]


def flat(params: Sequence[Tensor]) -> Array:
    """Return all parameters one behind another."""
    parts = [p.detach().cpu().numpy().ravel() for p in params]
    return np.concatenate(parts)


def distances(frameworks: Sequence[Results], expected: Array) -> Table:
    """Return below what the distances from expected parameters are.

    All parameters of all ranks count: rank 0's, and those of the others by
    how far they are from it.
    """
    rows = []
    for found in frameworks:
        for way in dict.fromkeys(way for way, _ in found.params):
            row = {"framework": found.framework, "way": way}
            for k in (1, 2, 3):
                away = np.abs(found.params[way, k] - expected).max()
                row[f"k = {k}"] = below(float(away) + found.apart[way, k])
            rows.append(row)
    return table(rows)
