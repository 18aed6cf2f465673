"""Which part of the data a rank's samplers divide."""

import zlib
from contextlib import ExitStack
from typing import Any

from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler

from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced


class DataOfSamplers(Watcher):
    """Keeps a number for the dataset of each ``DistributedSampler``."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.numbers: list[int] = []

    def begin(self, stack: ExitStack) -> None:
        """Look at samplers as they are made."""
        init: Any = DistributedSampler.__init__

        def noted(sampler: Any, *args: Any, **kwargs: Any) -> None:
            init(sampler, *args, **kwargs)
            self.numbers.append(_number_of(sampler.dataset))

        stack.callback(replaced(DistributedSampler, "__init__", noted).apply())


def _number_of(dataset: Any) -> int:
    """Return a number by which the parts of a dataset are known again.

    It is that of the indices, where ``random_split`` has made the part.
    """
    number = len(dataset)
    while isinstance(dataset, Subset):
        indices = ",".join(str(int(i)) for i in dataset.indices)
        number = zlib.crc32(indices.encode(), number)
        dataset = dataset.dataset
    return number
