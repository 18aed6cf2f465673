"""One rank begins each step with the parameters that the ranks begin with.

Rounding grows from step to step: where a unit is as good as zero, it decides
on which side of a ReLU it lies. So each step is compared for itself. Rank 0
writes its parameters after each step, and one rank, whose own have been
compared then, goes on with those.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dpkit.runs.check.digests import whole
from dpkit.sim.tensors import plain

Parameters = Mapping[str, torch.Tensor]


class ParametersOfSteps:
    """The parameters after each step, in files of a folder.

    Args:
        folder: It has a file for each step.
        rank: Rank 0 writes.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._is_first = rank == 0

    def write(self, step: int, parameters: Parameters) -> None:
        """Write those after a step; the first step is 1.

        All ranks have to call this, as they may hold parts of parameters.
        """
        found = {name: whole(p) for name, p in parameters.items()}
        if self._is_first:
            self._path(step).write_bytes(pickle.dumps(found))

    @torch.no_grad()
    def take(self, step: int, parameters: Parameters) -> None:
        """Give parameters the values that were written after a step."""
        if not self._path(step).exists():
            return
        found = pickle.loads(self._path(step).read_bytes())
        for name, p in parameters.items():
            local: Any = getattr(p, "_local_tensor", p)
            values = found.get(name)
            if values is not None and values.shape == local.shape:
                plain(local.detach()).copy_(values)

    def _path(self, step: int) -> Path:
        return self._folder / f"after {step}"
