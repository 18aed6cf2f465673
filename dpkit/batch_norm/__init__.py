"""Batch norm where the batch lies in parts, on ranks or one after another.

Batch norm mixes the examples of a batch: it takes from each channel its mean
and divides by its standard deviation. Where a device has only some of the
rows, there are three things to do::

    each for itself    rows 0–3 │ rows 4–6        two means, two variances
    synchronized       rows 0–3 ┼ rows 4–6        one mean, one variance
    deferred           rows 0–3, then rows 4–6    two; the running ones are one

``moments`` -- count, mean and squares of some values, and of several together;
``synchronized`` -- one mean and variance over all ranks;
``deferred`` -- running statistics of a batch that comes in micro-batches;
``conversion`` -- replace a module's batch norms by one of these.
"""

from dpkit.batch_norm.conversion import convert
from dpkit.batch_norm.deferred import DeferredBatchNorm, recomputing
from dpkit.batch_norm.moments import Moments, combine, moments, update_running
from dpkit.batch_norm.synchronized import Normalize, SyncBatchNorm, over_ranks

__all__ = [
    "DeferredBatchNorm",
    "Moments",
    "Normalize",
    "SyncBatchNorm",
    "combine",
    "convert",
    "moments",
    "over_ranks",
    "recomputing",
    "update_running",
]
