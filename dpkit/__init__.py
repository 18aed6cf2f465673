"""Training neural networks on many devices, from scratch.

The package has three parts, and a few helpers below them. Each part imports
from those below it, and never from those above::

    runs/       ranks and whole scripts on simulated GPUs
      │
      ▼
    the kit     what cells import, and what a student reads:
      │         data_parallel/, network_partition/, layer_partition/, …
      ▼
    sim/        the simulated machine: the devices sim:0, sim:1, … of torch
      │
      ▼
    helpers     units, tables, arguments, accelerator/, lazy

To read the kit, the insides of ``sim/`` and ``runs/`` are not needed. A folder
is a room with one subject. Its ``__init__.py`` says what is in it and where to
begin, and has the names that others ask for. In the kit a module imports from
those above it in this list, and from its own folder:

Helpers
    ``lazy`` -- names that are imported when they are asked for.
    ``units``, ``tables`` -- numbers checked, written with units, in tables.
    ``arguments`` -- checks of arguments that many functions take.
    ``accelerator/`` -- which GPUs torch can use here, and why not others.
The simulated machine
    ``sim/`` -- its hardware, clock, memory, streams and devices.
The kit, without a tensor: lists that are checked and timed before they run
    ``least_squares`` -- two numbers, fitted to measurements.
    ``plans/`` -- who sends what to whom.
    ``schedules/`` -- who computes what, in which order.
One concept each
    ``machine`` -- the devices to train on, and the time they take.
    ``losses`` -- whether a loss is a sum or a mean.
    ``clipping`` -- gradients on several devices, clipped by their norm.
    ``batch_norm/`` -- batch norm of a batch that lies in parts.
    ``buckets/`` -- gradients in flat buckets, and back.
    ``processes/`` -- ``dpkit.launch``: a function in real processes.
    ``traffic`` -- what a piece of code sends from device to device.
Copies and messages
    ``streams`` -- send from device to device while both compute.
    ``placement`` -- tensors to devices: scatter, gather, replicate.
    ``plan_runner`` -- move tensors by a list of messages.
    ``library`` -- a collective as one kernel on each device, as NCCL's; what
    it takes is in ``plans/library_costs.py``.
    ``collectives`` -- broadcast, reduce, allreduce, allgather, ….
The ways to split
    ``data_parallel/`` -- one training step on all devices together.
    ``sharding/`` -- what data parallelism copies, cut into shards.
    ``network_partition/`` -- stages on devices, driven by a schedule.
    ``layer_partition/`` -- layers whose weights are split over devices.
    ``sequence/`` -- attention whose sequences are split over ranks.
    ``experts/`` -- layers whose experts are split over ranks.
Around a step
    ``calibration/`` -- measures this machine, and saves it as a preset.
    ``evaluate`` -- accuracy over all devices.
    ``training`` -- epochs of steps, timed and scored.
    ``commands/`` -- ``python -m dpkit devices``, ``step``, ``calibrate``.
Ranks and scripts
    ``runs/`` -- ``dpkit.sim.launch``: PyTorch's own engines on ranks; and
    ``python -m dpkit torchrun``, ``run``, ``check``: scripts, unchanged.
    ``__main__`` -- chooses the command.
What the chapters run, draw and check besides is in ``dpbook``.

Where to look
    A copy of a tensor, by ``x.to`` or by ``send`` in ``streams.py`` of the
    kit, is charged by ``charge_copy`` in ``sim/tensors/charge.py``:
    ``sim/hardware/costs.py`` gives its seconds, and ``Clock.copy`` in
    ``sim/clock/`` issues it. A number that Python reads is charged by
    ``charge_read`` there.
    What is known of an operator of torch is in its record, which
    ``operator_of`` in ``sim/operators/record.py`` returns: its arithmetic is
    counted in ``flops.py`` there, its bytes in ``memory_traffic.py``.
    ``charge`` in ``sim/tensors/charge.py`` makes seconds of them.
    A schedule is checked by ``check`` in ``schedules/check.py``, a plan of
    messages in ``plans/check.py``. Where a new one has to be entered is in
    the ``__init__.py`` of these two rooms.
    A timeline draws itself, in ``sim/timeline/``.
    A new link or accelerator is a preset: ``sim/hardware/__init__.py`` lists
    the steps.
    ``sim.register()`` applies the table in ``sim/patches.py`` to torch.
    :func:`devices` calls it when it is first asked for simulated devices;
    importing dpkit does not.
    What ``dist.all_reduce`` does on a rank, and so what PyTorch's
    ``DistributedDataParallel`` does, is in ``runs/ranks/__init__.py``, step
    by step.
"""

from typing import TYPE_CHECKING

from dpkit.lazy import lazy_names

if TYPE_CHECKING:
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

__version__ = "0.1.0"

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

# The module that defines a name (``lazy``). The rooms and modules of the floor
# plan are imported when they are asked for, too: ``dpkit.batch_norm``.
_DEFINED_IN = {
    "ChannelParallelConv2d": "dpkit.layer_partition",
    "ColumnParallelLinear": "dpkit.layer_partition",
    "DataParallel": "dpkit.data_parallel",
    "DistributedDataParallel": "dpkit.data_parallel",
    "Pipeline": "dpkit.network_partition",
    "RowParallelLinear": "dpkit.layer_partition",
    "Timer": "dpkit.machine",
    "TrainingRecord": "dpkit.training",
    "allgather": "dpkit.collectives",
    "allreduce": "dpkit.collectives",
    "alltoall": "dpkit.collectives",
    "broadcast": "dpkit.collectives",
    "clip_grad_norm": "dpkit.clipping",
    "devices": "dpkit.machine",
    "evaluate_accuracy": "dpkit.evaluate",
    "gather": "dpkit.placement",
    "launch": "dpkit.processes",
    "reduce": "dpkit.collectives",
    "reduce_scatter": "dpkit.collectives",
    "replicate": "dpkit.placement",
    "scatter": "dpkit.placement",
    "split_batch": "dpkit.placement",
    "split_layers": "dpkit.network_partition",
    "synchronize": "dpkit.machine",
    "train": "dpkit.training",
    "train_batch": "dpkit.data_parallel",
}

if not TYPE_CHECKING:  # or any name would be one of the package
    __getattr__, __dir__ = lazy_names(__name__, _DEFINED_IN)
