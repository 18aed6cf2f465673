"""Run a script in real processes, where ``cuda`` means the CPU.

Usage: python -m torch.distributed.run --nproc-per-node 2 gloo.py
           [--steps N] [OPTION of watched.py ...] SCRIPT [ARGUMENT ...]

NCCL means gloo, a stream does nothing, and ``torch.compile`` leaves a model as
it is. Nothing is simulated: this is what simulated values are compared with.
"""

import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp  # so that all names are there to be replaced
import torch.distributed.tensor
from torch.distributed import device_mesh, distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(Path(__file__).parent))
from watched import run_watched

GPUS = 8  # as many as a script may ask for
BYTES = 80 << 30


def on_cpu(value: Any) -> Any:
    """Return ``cpu`` for the name of a GPU, else the value."""
    is_name = type(value) is str and value.partition(":")[0] == "cuda"
    return "cpu" if is_name else value


class OnCpu(TorchFunctionMode):
    """Puts tensors on the CPU that were to be on a GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = {k: on_cpu(v) for k, v in (kwargs or {}).items()}
        if type(named.get("device")) is int:
            named["device"] = "cpu"
        if func is torch.device:
            if args and (args[0] == "cuda" or type(args[0]) is int):
                return torch.device("cpu")
        if getattr(func, "__name__", "") in ("to", "_parse_to"):
            args = tuple("cpu" if type(a) is int else a for a in args)
        return func(*map(on_cpu, args), **named)


class Nothing:
    """A stream or an event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: 1.0

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


def says(value: Any = None) -> Callable[..., Any]:
    """Return a function that always says the same."""
    return lambda *args, **kwargs: value


def outside_torch(value: Any, inside: Any) -> Callable[..., Any]:
    """Return a function that tells a script one thing, and torch another."""

    def say(*args: Any, **kwargs: Any) -> Any:
        name = str(sys._getframe(1).f_globals.get("__name__", ""))
        return inside if name.split(".")[0] == "torch" else value

    return say


def replace_everywhere(old: Any, new: Any) -> None:
    """Put a function of torch in another's place, wherever it is named."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch") and inspect.ismodule(module):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def replace_device(owner: Any, name: str, index: int, keyword: str) -> None:
    """Make an argument of a function name the CPU in place of a GPU."""
    old = getattr(owner, name)

    @functools.wraps(old)
    def call(*args: Any, **kwargs: Any) -> Any:
        if keyword in kwargs:
            kwargs[keyword] = on_cpu(kwargs[keyword])
        if len(args) > index:
            args = (*args[:index], on_cpu(args[index]), *args[index + 1 :])
        return old(*args, **kwargs)

    setattr(owner, name, call)


def replace_cuda() -> None:
    """Make torch.cuda and torch.accelerator speak of GPUs."""
    cuda: Any = torch.cuda
    for name in dir(cuda):
        if "memory_" in name or name.endswith("_memory"):
            setattr(cuda, name, says(0))
    properties = type("Properties", (), {})()
    properties.name, properties.total_memory = "CPU", BYTES
    properties.major, properties.minor = 9, 0
    properties.multi_processor_count = 1
    silent = "set_device synchronize empty_cache _lazy_init init ipc_collect"
    for name in silent.split():
        setattr(cuda, name, says())
    cuda.is_available = outside_torch(True, False)
    cuda.device_count = outside_torch(GPUS, 0)
    cuda.current_device = says(0)
    cuda.is_bf16_supported = says(True)
    cuda.get_device_name = says("CPU")
    cuda.get_device_capability = says((9, 0))
    cuda.get_device_properties = says(properties)
    cuda.mem_get_info = says((BYTES, BYTES))
    cuda.memory_stats = says(defaultdict(int))
    cuda.manual_seed = torch.default_generator.manual_seed
    cuda.manual_seed_all = torch.default_generator.manual_seed
    cuda.Event = cuda.Stream = Nothing
    cuda.current_stream = cuda.stream = says(Nothing())
    accelerator: Any = torch.accelerator
    accelerator.is_available = outside_torch(True, False)
    accelerator.device_count = outside_torch(GPUS, 0)
    accelerator.set_device_index = accelerator.device_index = says()
    accelerator.current_accelerator = outside_torch(torch.device("cpu"), None)


def replace_tensors() -> None:
    """Make tensors and modules stay where they are."""
    tensor: Any = torch.Tensor
    tensor.cuda = tensor.pin_memory = lambda self, *args, **kwargs: self
    module: Any = torch.nn.Module
    module.cuda = lambda self, *args: self
    module.compile = says()
    compiled: Any = torch
    compiled.compile = lambda model=None, **_: (
        (lambda inner: inner) if model is None else model
    )
    load = torch.load
    compiled.load = lambda f, map_location=None, *args, **kwargs: load(
        f, on_cpu(map_location), *args, **kwargs
    )
    replace_device(
        torch.amp.autocast_mode.autocast, "__init__", 1, "device_type"
    )
    replace_device(torch.amp.GradScaler, "__init__", 1, "device")


def replace_distributed() -> None:
    """Make groups those of gloo, and meshes and modules on the CPU."""
    start = distributed_c10d.init_process_group

    def init_process_group(
        backend: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        kwargs.pop("device_id", None)
        start("gloo", *args, **kwargs)

    replace_everywhere(start, init_process_group)
    new_group = distributed_c10d.new_group
    replace_everywhere(
        new_group, lambda *a, **k: new_group(*a, **{**k, "backend": "gloo"})
    )
    init = DistributedDataParallel.__init__

    def on_no_device(
        self: Any, module: Any, device_ids: Any = None,
        output_device: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        init(self, module, **kwargs)

    parallel: Any = DistributedDataParallel
    parallel.__init__ = on_no_device
    replace_device(device_mesh.DeviceMesh, "__init__", 1, "device_type")
    make = device_mesh.init_device_mesh
    replace_device(device_mesh, "init_device_mesh", 0, "device_type")
    replace_everywhere(make, device_mesh.init_device_mesh)


def main(arguments: list[str]) -> None:
    """Run a script."""
    torch.set_num_threads(1)
    replace_cuda()
    replace_tensors()
    replace_distributed()
    steps = None
    if arguments[0] == "--steps":
        steps, arguments = int(arguments[1]), arguments[2:]
    with OnCpu():
        run_watched(arguments, steps)


if __name__ == "__main__":
    main(sys.argv[1:])
