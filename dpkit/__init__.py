"""Training neural networks on many devices, from scratch.

The floor plan: a module imports only from floors below its own.

Floor 1, theory: the standard library alone
    ``theory/`` -- hardware, the time that work takes on it, timelines.
Floor 2, simulated devices
    ``sim/`` -- the torch devices ``sim:0``, ``sim:1``, …
Floor 3, one concept each
    ``machine`` -- the devices at hand, and the time their work takes;
    ``placement`` -- tensors to devices: scatter, gather, replicate;
    ``collectives`` -- broadcast, reduce, allreduce.
Floor 4, composed
    ``data_parallel`` -- one training step on all devices together;
    ``evaluate`` -- accuracy over all devices;
    ``calibration/`` -- the hardware at hand measured, as presets.
Floor 5, whole runs
    ``training`` -- epochs of steps, timed and scored.
Floor 6, for the chapters
    ``lab/`` -- data, models, pictures, listings and checks of exercises.
Floor 7, the command line
    ``__main__`` -- ``python -m dpkit devices`` and ``… calibrate``.

Importing dpkit registers no backend: simulated devices appear when
:func:`devices` is first asked for some.
"""

from dpkit import sim
from dpkit.collectives import allreduce, broadcast, reduce
from dpkit.data_parallel import train_batch
from dpkit.evaluate import evaluate_accuracy
from dpkit.machine import Timer, devices, synchronize
from dpkit.placement import gather, replicate, scatter, split_batch
from dpkit.training import TrainingRecord, train

__all__ = [
    "Timer",
    "TrainingRecord",
    "allreduce",
    "broadcast",
    "devices",
    "evaluate_accuracy",
    "gather",
    "reduce",
    "replicate",
    "scatter",
    "sim",
    "split_batch",
    "synchronize",
    "train",
    "train_batch",
]
