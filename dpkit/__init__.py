"""Training neural networks on many devices, from scratch.

The floor plan: a module imports from lower floors, and from its own folder. A
folder is a room with one subject; its ``__init__.py`` says what is in it.

Floor 1, theory: the standard library alone
    ``theory/hardware/`` -- accelerators, links, hosts; what work costs.
    ``theory/clock/`` -- how time passes on them.
    ``theory/collectives/`` -- who sends what to whom.
    ``theory/pipelines/`` -- who computes what, in which order.
    ``theory/timeline/`` -- what happened, as a picture and in files.
    ``theory/`` itself -- tables, units, least squares, formulas.
Floor 2, used by every floor above
    ``accelerator/`` -- which GPUs torch can use here, and why not others.
    ``arguments`` -- checks of arguments that many functions take.
Floor 3, simulated devices
    ``sim/`` -- the torch devices ``sim:0``, ``sim:1``, …
Floor 4, one concept each
    ``machine`` -- the devices to train on, and the time they take.
    ``losses`` -- whether a loss is a sum or a mean.
    ``clipping`` -- gradients on several devices, clipped by their norm.
    ``batch_norm/`` -- batch norm of a batch that lies in parts.
    ``buckets/`` -- gradients in flat buckets, and back.
    ``processes/`` -- functions in real processes.
Floor 5, copies beside the work
    ``streams`` -- send from device to device beside the work.
Floor 6, batches and messages
    ``placement`` -- tensors to devices: scatter, gather, replicate.
    ``plan_runner`` -- move tensors by a list of messages.
Floor 7, one call for all messages
    ``library`` -- a collective as one kernel on each device, as NCCL's.
Floor 8, everyone takes part
    ``collectives`` -- broadcast, reduce, allreduce, allgather, ….
Floor 9, composed
    ``data_parallel/`` -- one training step on all devices together.
    ``sharding/`` -- what data parallelism copies, cut into shards.
    ``network_partition/`` -- stages on devices, driven by a schedule.
    ``layer_partition/`` -- layers whose weights are split over devices.
    ``ranks/`` -- ranks as threads, for PyTorch's own engines.
    ``calibration/`` -- measures this machine, and saves it as a preset.
Floor 10, scores
    ``evaluate`` -- accuracy over all devices.
Floor 11, whole runs
    ``training`` -- epochs of steps, timed and scored.
Floor 12, for the chapters
    ``lab/common/`` -- data, models, pictures and listings that they share.
    ``lab/<chapter>/`` -- what one chapter runs, draws and checks.
    ``lab/museum/`` -- the bugs on the page of that name.
Floor 13, the training job
    ``job/`` -- ranks, checkpoints, resume: ``python -m dpkit train``.
Floor 14, the command line
    ``commands/`` -- ``python -m dpkit devices``, ``… train``, ….
Floor 15, the way in
    ``__main__`` -- chooses the command.

Where to look
    A copy is sent by ``streams.send`` and charged by ``charge_copy`` in
    ``sim/charge.py``: ``theory/hardware/costs.py`` gives its seconds,
    ``theory/clock/`` its start.
    A schedule is checked by ``check`` in ``theory/pipelines/check.py``, a plan
    of messages in ``theory/collectives/check.py``.
    The figures of a chapter, ``book/<chapter>.ipynb``, are drawn in
    ``lab/<chapter>/pictures.py`` or, where there is none, by
    ``lab/common/plots.py``; a timeline draws itself, in ``theory/timeline/``.
    A new link or accelerator is a preset: ``theory/hardware/__init__.py``
    lists the steps.
    ``sim.register()`` applies the table in ``sim/patches.py`` to torch.
    :func:`devices` calls it when it is first asked for simulated devices;
    importing dpkit does not.
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
from dpkit.ranks import launch as launch_on_sim
from dpkit.training import TrainingRecord, train

sim.launch = launch_on_sim  # beside sim.machine, though on a higher floor

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
