"""Data parallelism: every device has all parameters and a shard of the batch.

A gradient is a sum over examples, so devices that each have some of the
examples have only gradients to exchange. ``step`` does it in one process, by
hand; ``wrapper`` in a module that is called like any other; ``distributed``
between processes, while backward still runs; ``bucketed`` the same in one
process, which drives all devices. Begin with ``step``.
"""

from dpkit.data_parallel.bucketed import BucketedDataParallel
from dpkit.data_parallel.distributed import DistributedDataParallel
from dpkit.data_parallel.step import (
    allreduce_gradients,
    clear_gradients,
    gradient,
    sgd,
    train_batch,
)
from dpkit.data_parallel.wrapper import DataParallel

__all__ = [
    "BucketedDataParallel",
    "DataParallel",
    "DistributedDataParallel",
    "allreduce_gradients",
    "clear_gradients",
    "gradient",
    "sgd",
    "train_batch",
]
