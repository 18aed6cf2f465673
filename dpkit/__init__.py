"""Training neural networks on many devices, from scratch.

The floor plan: a module imports only from floors below its own. A folder is a
room with one subject; its ``__init__.py`` says what is in it.

Floor 1, theory: the standard library alone
    ``theory/hardware/`` -- accelerators, links, hosts; what work costs;
    ``theory/clock/`` -- how time passes on them;
    ``theory/collectives/`` -- who sends what to whom;
    ``theory/pipelines/`` -- who computes what, in which order;
    ``theory/timeline/`` -- what happened, and all drawing of it.
Floor 2, asked from everywhere
    ``accelerator`` -- which real accelerators this machine has;
    ``arguments`` -- checks of arguments that many functions take.
Floor 3, simulated devices
    ``sim/`` -- the torch devices ``sim:0``, ``sim:1``, …
Floor 4, one concept each
    ``machine`` -- the devices at hand, and the time their work takes;
    ``placement`` -- tensors to devices: scatter, gather, replicate;
    ``losses`` -- whether a loss is a sum or a mean;
    ``clipping`` -- gradients on several devices, clipped by their norm;
    ``batch_norm/`` -- batch norm of a batch that lies in parts;
    ``buckets/`` -- gradients in flat buckets, and back;
    ``processes/`` -- functions in real processes.
Floor 5, on streams
    ``streams`` -- send from device to device beside the work.
Floor 6, messages
    ``plan_runner`` -- move tensors by a list of messages.
Floor 7, everyone takes part
    ``collectives`` -- broadcast, reduce, allreduce, allgather, …;
    ``point_to_point`` -- the same between processes.
Floor 8, composed
    ``data_parallel/`` -- one training step on all devices together;
    ``network_partition/`` -- stages on devices, driven by a schedule;
    ``layer_partition/`` -- layers whose weights are split over devices;
    ``calibration/`` -- the hardware at hand measured, as presets.
Floor 9, scores
    ``evaluate`` -- accuracy over all devices.
Floor 10, whole runs
    ``training`` -- epochs of steps, timed and scored.
Floor 11, for the chapters
    ``lab/common/`` -- data, models, pictures, listings: what they share;
    ``lab/<chapter>/`` -- what one chapter runs, draws and checks.
Floor 12, the training job
    ``job/`` -- ranks, checkpoints, resume: ``python -m dpkit train``.
Floor 13, the command line
    ``commands/`` -- ``python -m dpkit devices``, ``… train``, ….
Floor 14, the way in
    ``__main__`` -- chooses the command.

Where to look
    A copy is sent in ``streams`` and charged in ``sim/charge.py``, by the
    seconds of ``theory/hardware/costs.py``; ``theory/clock/`` says when.
    A schedule is checked in ``theory/pipelines/check.py``, a plan of messages
    in ``theory/collectives/check.py``.
    A chapter's figure is drawn in ``lab/<chapter>/pictures.py``, with
    ``lab/common/plots.py``; a timeline draws itself, in ``theory/timeline/``.
    A new link or accelerator is a preset in ``theory/hardware/``.
    What registering ``sim`` changes in torch is the table in
    ``sim/patches.py``. Importing dpkit registers nothing: it happens when
    :func:`devices` is first asked for simulated devices.
"""

from dpkit import sim
from dpkit.clipping import clip_grad_norm
from dpkit.collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    reduce,
    reduce_scatter,
)
from dpkit.data_parallel import (
    DataParallel,
    DistributedDataParallel,
    train_batch,
)
from dpkit.evaluate import evaluate_accuracy
from dpkit.layer_partition import (
    ChannelParallelConv2d,
    ColumnParallelLinear,
    RowParallelLinear,
)
from dpkit.machine import Timer, devices, synchronize
from dpkit.network_partition import Pipeline, split_layers
from dpkit.placement import gather, replicate, scatter, split_batch
from dpkit.processes import launch
from dpkit.training import TrainingRecord, train

__all__ = [
    "ChannelParallelConv2d",
    "ColumnParallelLinear",
    "DataParallel",
    "DistributedDataParallel",
    "Pipeline",
    "RowParallelLinear",
    "Timer",
    "TrainingRecord",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "clip_grad_norm",
    "devices",
    "evaluate_accuracy",
    "gather",
    "launch",
    "reduce",
    "reduce_scatter",
    "replicate",
    "scatter",
    "sim",
    "split_batch",
    "split_layers",
    "synchronize",
    "train",
    "train_batch",
]
