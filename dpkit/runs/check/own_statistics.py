"""Batch normalization of one rank, by the statistics that ranks have.

Each rank normalizes its own examples by their own mean and variance. One rank
that has the examples of all does the same here: it normalizes those of each
rank apart. The running statistics are those of rank 0, which
DistributedDataParallel sends to all. SyncBatchNorm takes those of all.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from dpkit.runs.check.kept import Kept
from dpkit.runs.check.model_facts import examples_in
from dpkit.runs.check.same_examples import places_among
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced


class OwnStatistics(Watcher):
    """Normalizes the examples of each rank apart.

    Args:
        several: What ranks have kept: which examples each had, in each step.
    """

    def __init__(self, several: Sequence[Kept]) -> None:
        super().__init__(0)
        self._several = several
        self._step = 0
        self._model: nn.Module | None = None  # the outermost
        self._groups: list[torch.Tensor] = []  # rows of each rank
        self._zero_first = False  # whether the first group is rank 0's

    def begin(self, stack: ExitStack) -> None:
        """Normalize so until a stack ends."""
        call: Any = nn.Module.__call__

        def looked_at(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._look(module, args, kwargs)
            return call(module, *args, **kwargs)

        stack.callback(replaced(nn.Module, "__call__", looked_at).apply())
        forward: Any = _BatchNorm.forward

        def normalized(module: Any, x: torch.Tensor) -> Any:
            rows = sum(map(len, self._groups))
            if module.training and len(self._groups) > 1 and len(x) == rows:
                return self._normalize(forward, module, x)
            return forward(module, x)

        stack.callback(replaced(_BatchNorm, "forward", normalized).apply())

    def stepped(self, optimizer: Optimizer) -> None:
        """Go on to the examples of the next step."""
        self._step += 1

    def _look(self, module: nn.Module, args: Any, named: Any) -> None:
        if self._model is None and _normalizes(module):
            self._model = module
        if module is self._model:
            found = examples_in(args, named)
            self._groups = self._rows_by_rank(found.numbers) if found else []

    def _rows_by_rank(self, numbers: Sequence[float]) -> list[torch.Tensor]:
        """Return which rows each rank has had; none if that is not known."""
        known: list[float] = []
        owners: list[int] = []
        for rank, kept in enumerate(self._several):
            if self._step < len(kept.facts):
                for examples in kept.facts[self._step].examples:
                    known += examples.numbers
                    owners += [rank] * len(examples.numbers)
        if not known:
            return []
        wanted, there = _numbers(numbers), _numbers(known)
        places = places_among(wanted, there)
        if bool((places < 0).any()):
            return []
        of_row = torch.tensor(owners, device="cpu")[places]
        ranks = of_row.unique().tolist()
        self._zero_first = ranks[0] == 0
        return [(of_row == rank).nonzero().flatten() for rank in ranks]

    def _normalize(self, forward: Any, module: Any, x: torch.Tensor) -> Any:
        parts = []
        for i, rows in enumerate(self._groups):
            part = x[rows.to(x.device)]
            if i == 0 and self._zero_first:
                parts.append(forward(module, part))
            else:
                parts.append(
                    nn.functional.batch_norm(
                        part, None, None, module.weight, module.bias,
                        training=True, eps=module.eps,
                    )
                )  # fmt: skip
        order = torch.cat(self._groups).argsort()
        return torch.cat(parts)[order.to(x.device)]


def _normalizes(module: nn.Module) -> bool:
    """Return whether a module normalizes batches, and learns something."""
    parts = list(module.modules())
    learns = any(p.requires_grad for p in module.parameters())
    return learns and any(isinstance(x, _BatchNorm) for x in parts)


def _numbers(found: Sequence[float]) -> torch.Tensor:
    return torch.tensor(found, dtype=torch.float64, device="cpu")
