"""All that makes ``cuda`` mean the simulated devices, in one table.

It is made and undone by :func:`as_cuda`. Each change has a probe, as those of
``dpkit.sim.patches`` have.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp import autocast_mode
from torch.autograd import profiler
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.fsdp import FullyShardedDataParallel

from dpkit.accelerator import found as gpus
from dpkit.runs.cuda_names import (
    cuda_module,
    distributed,
    functions,
    loading,
    names,
    tensor_types,
)
from dpkit.runs.cuda_names import not_modelled as noted
from dpkit.runs.cuda_names.time_of_programs import show_simulated_time
from dpkit.sim.changes import Patch, added, replaced, stood_in, wrapped
from dpkit.sim.devices import names as device_names
from dpkit.sim.devices import simulation
from dpkit.sim.memory import accounting
from dpkit.sim.parallel import DATA_PARALLEL, simulated_calls
from dpkit.sim.streams import SimEvent, SimStream

_BY_KIND = (
    *("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype"),
    "set_autocast_dtype",
)


def patches() -> list[Patch]:
    """Return the changes, in the order in which they are made."""
    return [
        # dpkit goes on to see the GPUs that there are, but as the accelerator.
        wrapped(gpus, "_reasons", _as_it_is),
        replaced(device_names, "real_devices", list),
        *_of_names(),
        *_of_functions(),
        *_of_kinds(),
        *_of_accelerator(),
        *(
            replaced(module, name, new)
            for module, name, new in cuda_module.replacements()
        ),
        *_of_distributed(),
        *_of_loading(),
        *_of_what_is_not_modelled(),
    ]


def _of_names() -> list[Patch]:
    """Return what changes how a device is called."""
    return [
        replaced(device_names, "read", names.simulated),
        replaced(device_names, "read_numbered", names.simulated_number),
        replaced(device_names, "shown", names.seen),
        replaced(accounting, "called", names.gpu_called),
        replaced(simulated_calls, "means_simulated", lambda *given: True),
        replaced(
            DATA_PARALLEL, "_get_all_device_indices", names.visible_numbers
        ),
        added(torch.Tensor, "device", names.device_of_tensor),
        added(torch.Tensor, "is_cuda", names.is_cuda_of_tensor),
        added(SimStream, "device", functions.attribute_shown("device")),
        wrapped(SimEvent, "device", functions.property_shown),
        wrapped(SimStream, "__init__", functions.stream_made),
    ]


def _of_functions() -> list[Patch]:
    """Return what changes functions that read a device, or tell one."""
    read = functions.device_read
    return [
        *(stood_in(torch, name, read) for name in functions.FACTORIES),
        *(stood_in(torch.Tensor, name, read) for name in functions.METHODS),
        *(stood_in(torch.fft, name, read) for name in functions.OF_FFT),
        stood_in(torch.Tensor, "to", functions.target_read),
        wrapped(nn.Module, "to", functions.target_read),
        wrapped(
            FullyShardedDataParallel, "__init__", functions.device_id_read
        ),
        replaced(torch.Tensor, "cuda", functions.to_cuda),
        wrapped(
            nn.parallel.DistributedDataParallel,
            "__init__",
            functions.devices_of_ddp,
        ),
        wrapped(torch, "get_device", functions.number_shown),
        stood_in(torch.Tensor, "get_device", functions.number_shown),
        wrapped(torch, "get_default_device", functions.device_shown),
        wrapped(torch, "get_device_module", functions.module_shown),
        stood_in(torch.Tensor, "type", tensor_types.typed),
        wrapped(
            torch, "set_default_tensor_type", tensor_types.set_default_type
        ),
    ]


def _of_kinds() -> list[Patch]:
    """Return what changes functions that read a kind of device: "cuda"."""
    by_kind = functions.kind_read
    return [
        *(
            wrapped(torch, name, by_kind(0, "device_type"))
            for name in _BY_KIND
        ),
        replaced(
            torch,
            "get_autocast_gpu_dtype",
            lambda: torch.get_autocast_dtype("sim"),
        ),
        replaced(
            torch,
            "set_autocast_gpu_dtype",
            lambda dtype: torch.set_autocast_dtype("sim", dtype),
        ),
        wrapped(autocast_mode, "_cast", by_kind(1, "device_type")),
        wrapped(device_mesh, "_get_device_handle", functions.module_of_mesh),
        wrapped(device_mesh.DeviceMesh, "__init__", by_kind(1, "device_type")),
        wrapped(
            device_mesh.DeviceMesh, "device_type", functions.property_shown
        ),
    ]


def _of_accelerator() -> list[Patch]:
    """Return what changes ``torch.accelerator``."""
    owner = torch.accelerator
    return [
        wrapped(owner, "current_accelerator", functions.device_shown),
        wrapped(owner, "device_count", functions.number_of_devices),
        wrapped(owner.device_index, "__init__", functions.block_on_device),
        wrapped(owner, "current_device_index", functions.current_device_seen),
        *(
            wrapped(owner, name, functions.numbers_of_program)
            for name in functions.ACCELERATOR_FUNCTIONS
        ),
    ]


def _of_distributed() -> list[Patch]:
    """Return what changes ``torch.distributed``."""
    nccl = "ProcessGroupNCCL"  # not where torch has no CUDA
    stand_in = distributed.ProcessGroupNCCL
    missing = [owner for owner in (dist, c10d) if not hasattr(owner, nccl)]
    return [
        *(added(owner, nccl, stand_in) for owner in missing),
        wrapped(c10d.BackendConfig, "__init__", distributed.any_backend),
        wrapped(dist, "init_process_group", functions.device_id_read),
        wrapped(dist, "init_process_group", distributed.options_noted),
        wrapped(dist, "new_group", distributed.options_noted),
        replaced(dist, "is_nccl_available", lambda: True),
        replaced(torch.cuda.nccl, "version", lambda: cuda_module.NCCL_VERSION),
    ]


def _of_loading() -> list[Patch]:
    """Return what changes ``torch.load``."""
    return [
        wrapped(
            torch.serialization, "default_restore_location", loading.restoring
        ),
        replaced(torch.UntypedStorage, "cuda", loading.storage_to_cuda),
    ]


def _of_what_is_not_modelled() -> list[Patch]:
    """Return what takes the place of what is not simulated."""
    return [
        replaced(torch, "compile", noted.compile_nothing),
        wrapped(profiler.profile, "__init__", noted.of_host),
    ]


def _as_it_is(original: Any) -> Any:
    """Return a function that always returns what another does now."""
    found = original()
    return lambda: found


@contextmanager
def as_cuda(real_time: bool = False) -> Iterator[None]:
    """Make ``cuda`` mean the simulated devices, in a block.

    ``torch.device("cuda:1")``, ``.cuda()``, ``torch.cuda.synchronize()`` and
    the like, autocast, ``map_location`` and ``backend="nccl"`` are read as
    simulated devices would be; a program that asks for the device of a tensor
    gets ``cuda:1``. After the block torch is as before, and tensors that
    were made in it are on ``sim:1``.

    ``time.time()``, ``time.perf_counter()`` and the like show the program's
    files and cells the seconds of the simulated clock. The first use prints
    that. Libraries see the time on the wall.

    ``CUDA_VISIBLE_DEVICES`` says which devices a program sees, and in which
    order, if it sets the variable in the block. What a program has imported
    before keeps its meaning, such as the ``ones`` of ``from torch import
    ones``.

    Args:
        real_time: Whether the program sees the time on the wall, too.

    Raises:
        RuntimeError: this torch lacks what would be changed; or the values of
            simulated devices lie on a GPU, which has the name ``cuda`` then.

    Example:
        >>> with dpkit.sim.as_cuda():
        ...     x = torch.ones(3, device="cuda:1")
        ...     print(x.device, x.is_cuda, torch.cuda.memory_allocated(1))
        cuda:1 True 12
        >>> x.device
        device(type='sim', index=1)
    """
    from dpkit.sim import register

    register()
    if "device" in vars(torch.Tensor):  # in another block
        yield
        return
    if simulation.backing.type == "cuda":
        raise RuntimeError(
            "cuda cannot mean the simulated devices while a GPU holds their "
            f"values (backing: {str(simulation.backing)!r}); configure "
            'backing="cpu"'
        )
    noted.notes.clear()
    names.begin()
    cuda_module.begin_choice()
    changes = patches()
    missing = [patch.name for patch in changes if not patch.fits()]
    if missing:
        raise RuntimeError(
            "cuda cannot mean the simulated devices on this torch (torch: "
            f"{torch.__version__}, missing: {', '.join(missing)})"
        )
    with ExitStack() as stack:
        for patch in changes:
            stack.callback(patch.apply())
        if not real_time:
            show_simulated_time(stack, tells=True)
        try:
            yield
        except Exception as error:
            if noted.is_of_cuda(error):
                error.add_note(noted.PAST)
            raise
