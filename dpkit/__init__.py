"""Training neural networks on many devices, from scratch.

The floor plan: a module imports from lower floors, and from its own folder. A
folder is a room with one subject; its ``__init__.py`` says what is in it.

Floor 1, theory: the standard library alone
    ``theory/hardware/`` -- accelerators, links, hosts; what work costs.
    ``theory/clock/`` -- how time passes on them.
    ``theory/collectives/`` -- who sends what to whom.
    ``theory/pipelines/`` -- who computes what, in which order.
    ``theory/timeline/`` -- what happened, as a picture and in files.
    ``theory/`` itself -- tables, units, least squares.
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
    ``traffic`` -- what a piece of code sends from device to device.
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
    ``sequence/`` -- attention whose sequences are split over ranks.
    ``experts/`` -- layers whose experts are split over ranks.
    ``ranks/`` -- ranks as threads, for PyTorch's own engines.
    ``calibration/`` -- measures this machine, and saves it as a preset.
Floor 10, scores
    ``evaluate`` -- accuracy over all devices.
Floor 11, whole runs
    ``training`` -- epochs of steps, timed and scored.
Floor 12, ranks that are processes
    ``forked/`` -- forked from this one, with one simulated clock.
Floor 13, whole scripts
    ``torchrun/`` -- a script on simulated GPUs, unchanged, and a report.
Floor 14, the command line
    ``commands/`` -- ``python -m dpkit devices``, ``… step``, ….
Floor 15, the way in
    ``__main__`` -- chooses the command.
What the chapters run, draw and check besides is in ``dpbook``.

Where to look
    A copy is sent by ``streams.send`` and charged by ``charge_copy`` in
    ``sim/tensors/charge.py``: ``theory/hardware/costs.py`` gives its seconds,
    ``theory/clock/`` its start.
    What an operator of torch costs is in its record, which ``operator_of``
    in ``sim/operators/record.py`` returns; ``charge`` in
    ``sim/tensors/charge.py`` makes seconds of it.
    A schedule is checked by ``check`` in ``theory/pipelines/check.py``, a plan
    of messages in ``theory/collectives/check.py``. Where a new one has to be
    entered is in the ``__init__.py`` of these two rooms.
    A timeline draws itself, in ``theory/timeline/``.
    A new link or accelerator is a preset: ``theory/hardware/__init__.py``
    lists the steps.
    ``sim.register()`` applies the table in ``sim/patches.py`` to torch.
    :func:`devices` calls it when it is first asked for simulated devices;
    importing dpkit does not.
    What ``dist.all_reduce`` does on a rank, and so what PyTorch's
    ``DistributedDataParallel`` does, is in ``ranks/__init__.py``, step by
    step.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

# The module that defines a name is imported when the name is first asked for,
# so that "import dpkit" takes no time: as SciPy does it (Scientific Python,
# SPEC 1). Type checkers read the imports above instead. The rooms and modules
# of the floor plan are imported when asked for, too: ``dpkit.batch_norm``.
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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_parts()})


def _parts() -> set[str]:
    """Return the rooms and modules of the floor plan, as files tell."""
    # Here, not above: it takes a millisecond.
    from pkgutil import iter_modules

    return {part.name for part in iter_modules(__path__)} - {"__main__"}


if not TYPE_CHECKING:  # or any name would be one of the package

    def __getattr__(name: str) -> Any:
        """Import a public name, and keep it, or a part of the package."""
        if name in _DEFINED_IN:
            found = getattr(import_module(_DEFINED_IN[name]), name)
            globals()[name] = found
            return found
        if name in _parts():
            return import_module(f"dpkit.{name}")
        raise AttributeError(f"module 'dpkit' has no attribute {name!r}")
