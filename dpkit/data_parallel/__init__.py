"""Data parallelism: every device has all parameters and a shard of the batch.

A gradient is a sum over examples, so devices that each have some of the
examples need to exchange only gradients.

``step`` -- a training step by hand, in one process: begin here;
``wrapper`` -- a module that is called like any other, with ``nested``: tensors
    in tuples, lists and dicts, scattered and gathered;
``distributed`` -- a process for each device, which sends while backward runs,
    after an ``agreement`` of all on the module;
``bucketed`` -- the same in one process, which drives all devices.
"""

from dpkit.data_parallel.bucketed import BucketedDataParallel
from dpkit.data_parallel.distributed import DistributedDataParallel, Means
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
    "Means",
    "allreduce_gradients",
    "clear_gradients",
    "gradient",
    "sgd",
    "train_batch",
]
