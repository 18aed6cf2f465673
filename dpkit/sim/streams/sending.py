"""How ``torch.distributed`` sends what lies on a simulated device.

A group that is written in C++, such as gloo's, sends by operations of one
namespace, ``c10d``. Autograd's key of simulated tensors has a kernel for each
of them, which comes before ``SimTensor.__torch_dispatch__``: other operations
pay nothing for it.

The kernel refuses. Gloo would send the values, and that would cost nothing on
the simulated clock. By itself ``torch.distributed`` chooses what it would
choose without simulated devices: NCCL and a GPU where there is one, else gloo
and the CPU.

A rank that ``dpkit.sim.launch`` has started has a group that is written in
Python. PyTorch calls it directly, and not by such an operation: its way is in
``dpkit/runs/ranks/__init__.py``. If a rank calls one of the operations itself,
the kernel leaves it to PyTorch.
"""

from collections.abc import Callable, Iterator
from threading import local
from typing import Any

import torch
import torch.distributed as dist

from dpkit.sim.containers import tensors_in
from dpkit.sim.devices.names import accelerator

BACKEND = "sim"  # the name of the backend of torch.distributed
FAKE = "fake"  # what libraries take for an axis of a mesh that is not used
NAMESPACE = "c10d"


class _Thread(local):
    """What a thread has that is a rank."""

    make_group: Callable[[Any], dist.ProcessGroup] | None = None
    rank: int | None = None  # while its program runs
    sends: bool = True  # whether the group that it makes is to send
    is_process: bool = False  # whether its process has no other rank
    asked: str = ""  # the backend that the program has named last


thread = _Thread()


def become_rank(
    rank: int,
    make_group: Callable[[Any], dist.ProcessGroup],
    is_process: bool = False,
) -> None:
    """Make this thread a rank.

    Args:
        rank: Its number.
        make_group: Makes its process groups.
        is_process: Whether this process has no other rank. Then all of its
            threads are this one, those as well that it starts later.
    """
    if is_process:
        _Thread.make_group = staticmethod(make_group)
        _Thread.rank = rank
        _Thread.is_process = True
    thread.make_group = make_group
    thread.rank = rank


def check_rank(rank: int) -> None:
    """Raise RuntimeError unless the program of this rank is calling."""
    if thread.rank != rank:
        raise RuntimeError(
            "a process group is for the program of its rank, while that runs "
            f"(group of rank: {rank}, called by: {thread.rank})"
        )


def make_group(options: Any, backend_options: Any) -> dist.ProcessGroup:
    """Make a process group of the backend "sim", for a rank."""
    if thread.make_group is None:
        raise RuntimeError(
            "a process group on simulated devices needs ranks that take turns "
            f"(backend: {BACKEND!r}); dpkit.sim.launch starts them"
        )
    group: Any = thread.make_group(options)
    group.is_fake = not thread.sends and options.group_size > 1
    made: dist.ProcessGroup = group
    return made


def sending_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each operation that sends, and its kernel."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == NAMESPACE:
            packet = getattr(getattr(torch.ops, space), name)
            yield name, _kernel(packet.default)


def _kernel(func: Any) -> Callable[..., Any]:
    """Return a kernel that calls PyTorch's own, or refuses."""
    key = torch._C.DispatchKey.PrivateUse1

    def run(*args: Any, **kwargs: Any) -> Any:
        if thread.make_group is None:
            raise _not_sent(func, args, kwargs)
        return func._op_dk(key, *args, **kwargs)

    return run


def _not_sent(func: Any, args: Any, kwargs: Any) -> NotImplementedError:
    """Return the error that says what to use instead."""
    name = func.name().partition("::")[2].partition(".")[0]
    found = {t.device for t in tensors_in([args, kwargs])}
    device = min(map(str, found), key=lambda d: not d.startswith("sim"))
    return NotImplementedError(
        "torch.distributed does not send what lies on a simulated device "
        f"(operation: {name}, device: {device}), except in the ranks of "
        "dpkit.sim.launch; dpkit.allreduce and its like do, "
        "dpkit.DataParallel stands in for PyTorch's DistributedDataParallel, "
        "and tensors on the CPU go by gloo"
    )


def own_choice() -> torch.device:
    """Return the kind of device that ``torch.distributed`` takes by itself."""
    if thread.make_group is not None:
        return torch.device("sim")
    kind = accelerator()
    return torch.device("cpu") if kind.type == "sim" else kind


_kind_found: Callable[[], str | None] = torch._utils._get_available_device_type


def kind_of_rank() -> str | None:
    """Return the kind of device of this rank, or what torch finds."""
    return _kind_found() if thread.rank is None else "sim"


def default_backend() -> str:
    """Return the backend of ``init_process_group()`` without a name."""
    kind = own_choice().type
    if kind == "sim":
        return BACKEND  # for the CPU as well
    return f"{kind}:{dist.Backend.default_device_backend_map[kind]}"


def choosing_backend(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that chooses as without sim."""

    def choose(self: Any, backend: str) -> None:
        undefined = str(backend) == dist.Backend.UNDEFINED
        chosen = default_backend() if undefined else str(backend)
        if thread.make_group is not None:
            thread.sends = chosen != FAKE
            chosen = BACKEND if chosen == FAKE else chosen
        if thread.make_group is not None and chosen != BACKEND:
            # It would wait in C++ for a rank that has not its turn.
            raise ValueError(
                f"ranks of dpkit.sim.launch have one backend (asked for: "
                f"{chosen!r}, there is: {BACKEND!r}, also for the CPU)"
            )
        original(self, chosen)

    return choose
