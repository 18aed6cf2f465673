"""The functions that take the places of those in ``torch.cuda``.

Most are functions of ``torch.sim``, which mirrors ``torch.cuda``. They take
and return the numbers that a program has for its devices.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from torch.distributed import device_mesh

from dpkit.runs.cuda_names import not_modelled as noted
from dpkit.runs.cuda_names.names import (
    is_inside,
    number_seen,
    simulated_number,
    visible_count,
)
from dpkit.runs.cuda_names.tensor_types import TYPES
from dpkit.sim import torch_sim
from dpkit.sim.devices import current_device, device_of, set_device, simulation
from dpkit.sim.graphs import is_capturing
from dpkit.sim.operators import default_generator
from dpkit.sim.streams import thread

NCCL_VERSION = (2, 27, 5)  # that of the wheels of torch 2.9


def numbers_read(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads the devices that a program names."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {
            name: simulated_number(value) if name == "device" else value
            for name, value in kwargs.items()
        }
        return function(*map(simulated_number, args), **named)

    return call


def says_capturing() -> bool:
    """Return whether a graph is captured; to ``SyncBatchNorm`` on "meta" True.

    Unless in a graph, it leaves out ranks without rows, which on "meta" it
    cannot tell: there all have some.
    """
    if is_capturing():
        return True
    caller = sys._getframe(1).f_globals["__name__"]
    is_norm = caller == "torch.nn.modules._functions"
    return is_norm and simulation.backing.type == "meta"


class _Chosen:
    """Whether the program of this process has chosen its device, or asked."""

    yet = False


def begin_choice() -> None:
    """Note that the program of a block has not chosen its device yet."""
    _Chosen.yet = False


def has_begun() -> bool:
    """Return whether the program has used a device, or chosen one.

    A mesh of devices chooses one where it has not. PyTorch's other modules
    get True: what they do when CUDA begins need not be put off.
    """
    caller = sys._getframe(1).f_globals.get("__name__")
    if caller != device_mesh.__name__ and is_inside():
        return True
    if thread.rank is not None and not thread.is_process:
        return True  # each rank of a launch begins on its own device
    return _Chosen.yet or any(simulation.memory.peak)


class CudaProperties:
    """What ``torch.cuda.get_device_properties`` returns."""

    def __init__(self, device: Any = None) -> None:
        self._found = torch_sim.get_device_properties(device)
        self.name = f"{self._found.name} (simulated)"
        self.total_memory = self._found.total_memory

    @property
    def major(self) -> int:
        """The first number of the compute capability."""
        return self._found.major

    @property
    def minor(self) -> int:
        """The second number of the compute capability."""
        return self._found.minor

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a simulated device has no {name}; it has a name, total_memory, "
            "and the major and minor number of its capability"
        )

    def __repr__(self) -> str:
        megabytes = self.total_memory >> 20
        return f"_CudaDeviceProperties({self.name!r}, {megabytes} MB)"


def current_number() -> int:
    """Return the number of the current device."""
    _Chosen.yet = True
    visible_count()  # the current device is one of these
    return number_seen(current_device())


def choose_device(device: Any) -> None:
    """Make a device the current one; a negative number changes nothing."""
    if not (type(device) is int and device < 0):
        _Chosen.yet = True
        set_device(simulated_number(device))


def _exchange_device(index: int) -> int:
    before = current_number()
    choose_device(index)
    return before


class DefaultGenerators:
    """The generator that each device draws from, by its number."""

    def __len__(self) -> int:
        return visible_count()

    def __getitem__(self, index: int) -> torch._C.Generator:
        if not -len(self) <= index < len(self):
            raise IndexError("tuple index out of range")
        device = simulated_number(index % len(self))
        return default_generator(device)


class DeviceBlock:
    """Make a device the current one: ``with torch.cuda.device(1):``.

    ``None`` and a negative number leave it as it is.
    """

    def __init__(self, chosen: Any) -> None:
        leaves = chosen is None or (type(chosen) is int and chosen < 0)
        self._block: Any = (
            nullcontext()
            if leaves
            else torch_sim.device(simulated_number(chosen))
        )

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


class DeviceBlockOf(DeviceBlock):
    """Make the device of a tensor the current one in a block."""

    def __init__(self, tensor: torch.Tensor) -> None:
        own = device_of(tensor)
        super().__init__(own if own.type == "sim" else None)


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing: a GPU would, for what is not simulated."""


class CudaRuntime:
    """What ``torch.cuda.cudart()`` returns: CUDA's profiler alone."""

    @staticmethod
    def cudaProfilerStart() -> int:  # noqa: N802
        """Do nothing; return the number that says so."""
        return 0

    cudaProfilerStop = cudaProfilerStart  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        raise noted.not_simulated(f"cuda.cudart().{name}")


# What takes a device, as the first argument or by name.
OF_DEVICE = (
    *("synchronize", "current_stream", "default_stream", "mem_get_info"),
    *("memory_stats", "memory_stats_as_nested_dict", "memory_summary"),
    *("reset_peak_memory_stats", "reset_accumulated_memory_stats"),
    "can_device_access_peer",
)
_OTHERS = (
    *("is_available", "Stream", "Event", "set_stream", "empty_cache"),
    *("CUDAGraph", "graph", "graph_pool_handle"),
)
#: What is not here calls one of these: ``memory_allocated`` asks
#: ``memory_stats``, ``manual_seed`` one of ``default_generators``.
FUNCTIONS: dict[str, Any] = {
    **{n: numbers_read(getattr(torch_sim, n)) for n in OF_DEVICE},
    **{n: getattr(torch_sim, n) for n in _OTHERS},
    "is_initialized": has_begun,
    "device": DeviceBlock,
    "device_of": DeviceBlockOf,
    "device_count": visible_count,
    "current_device": current_number,
    "set_device": choose_device,
    "_exchange_device": _exchange_device,
    "_maybe_exchange_device": _exchange_device,
    "get_device_properties": numbers_read(CudaProperties),
    "default_generators": DefaultGenerators(),
    "ipc_collect": nothing,
    "is_current_stream_capturing": says_capturing,
    "cudart": CudaRuntime,
    "check_error": nothing,
    "set_per_process_memory_fraction": nothing,
    "set_sync_debug_mode": nothing,
    "get_sync_debug_mode": lambda: 0,
    "get_arch_list": lambda: [
        f"sm_{major}{minor}"
        for major, minor in [torch_sim.get_device_capability()]
    ],
    **TYPES,
    **noted.OF_CUDA,
}
#: Modules inside of ``torch.cuda`` that define some of these.
DEFINING = (
    *(torch.cuda.graphs, torch.cuda.memory, torch.cuda.profiler),
    *(torch.cuda.random, torch.cuda.streams),
)
MARKERS = ("range_push", "range_pop", "mark", "range_start", "range_end")


def replacements() -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield what is replaced in ``torch.cuda``: where, its name, by what."""
    for name, new in FUNCTIONS.items():
        old = getattr(torch.cuda, name, None)
        yield torch.cuda, name, new
        for module in DEFINING:
            if old is not None and vars(module).get(name) is old:
                yield module, name, new
    for name, new in noted.OF_MEMORY.items():
        yield torch.cuda.memory, name, new
    for name, new in noted.OF_NCCL.items():
        yield torch.cuda.nccl, name, new
    for name in MARKERS:
        yield torch.cuda.nvtx, name, nothing
