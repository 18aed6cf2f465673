"""What a GPU would do and simulated devices do not: noted once, or refused."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from dpkit.sim import places
from dpkit.sim.compiled import as_compiled

#: What was done otherwise, each once, in order: a sentence -> the line that
#: asked for it first.
notes: dict[str, str] = {}


def note(sentence: str) -> None:
    """Note that something was done otherwise, and which line asked for it."""
    if sentence not in notes:
        notes[sentence] = places.here().described()


# -- what runs without a part of it


def compile_nothing(model: Any = None, **options: Any) -> Any:
    """Stand in for ``torch.compile``: what it is given runs as it is.

    FlexAttention alone is charged as one kernel in it.
    """
    note(
        "torch.compile: runs eagerly; compiled, it would be faster than this "
        "on a GPU"
    )
    return as_compiled if model is None else as_compiled(model)


def of_host(original: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of autograd's profiler that leaves CUDA out."""

    @wraps(original)
    def init(self: Any, enabled: bool = True, **options: Any) -> None:
        if options.get("use_device") == "cuda":
            note(
                "torch.profiler: shows this machine's CPU alone; a timeline "
                "of the simulated devices is made by dpkit.sim.trace"
            )
            options |= {"use_device": None, "use_cpu": True}
        original(self, enabled, **options)

    return init


def record_no_memory(*_: Any, **__: Any) -> None:
    """Stand in for what records the allocator's work, or saves the record."""
    note(
        "torch.cuda.memory: no history of the allocator is recorded or saved; "
        "dpkit.sim.trace records what memory was for"
    )


# -- what is refused

_ON_MEMORY = "dpkit.sim.trace records what memory was for"
_ON_SENSORS = "leave out what reads a GPU's sensors"


def not_simulated(name: str, instead: str = "") -> NotImplementedError:
    """Return the error for what cannot be simulated.

    Args:
        name: What a program asks for, in ``torch``.
        instead: What may be done.
    """
    return NotImplementedError(
        f"torch.{name} is not simulated (asked for in "
        f"{places.here().described()})" + (f"; {instead}" if instead else "")
    )


def refused(name: str, instead: str) -> Callable[..., NoReturn]:
    """Return a function that refuses whatever it is called with.

    Args:
        name: The name of the function in whose place it stands, in ``torch``.
        instead: What may be done.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise not_simulated(name, instead)

    return refuse


_SENSORS = (
    *("clock_rate", "device_memory_used", "memory_usage", "power_draw"),
    *("temperature", "utilization"),
)
#: By their names in ``torch.cuda``.
OF_CUDA: dict[str, Any] = {
    "memory_snapshot": refused("cuda.memory_snapshot", _ON_MEMORY),
    **{name: refused(f"cuda.{name}", _ON_SENSORS) for name in _SENSORS},
}
#: By their names in ``torch.cuda.nccl``: calls of NCCL by one process.
OF_NCCL: dict[str, Any] = {
    name: refused(
        f"cuda.nccl.{name}",
        "torch.cuda.comm copies and adds among GPUs, and dpkit has the same "
        f"as a collective, such as dpkit.{collective}",
    )
    for name, collective in (
        ("all_reduce", "allreduce"),
        ("reduce", "reduce"),
        ("broadcast", "broadcast"),
        ("all_gather", "allgather"),
        ("reduce_scatter", "reduce_scatter"),
    )
}
#: By their names in ``torch.cuda.memory``.
OF_MEMORY: dict[str, Any] = {
    "_record_memory_history": record_no_memory,
    "_dump_snapshot": record_no_memory,
    "_snapshot": refused("cuda.memory._snapshot", _ON_MEMORY),
}


PAST = (
    "cuda means the simulated devices here, and this call has gone past them "
    "to CUDA itself: dpkit does not know it"
)


# The first two without a driver, the others by a torch without CUDA.
_WORDS = (
    *("CUDA driver version", "no NVIDIA driver", "not compiled with CUDA"),
    *("no attribute '_cuda_", "dummy base class"),
)


def is_of_cuda(error: Exception) -> bool:
    """Return whether an error says that CUDA was asked, and is not there."""
    return any(phrase in str(error) for phrase in _WORDS)
