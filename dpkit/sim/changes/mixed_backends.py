"""GPUs and simulated devices in one process.

PyTorch has one *accelerator* in a process: the kind of device whose streams
the autograd engine knows, and which a number means, as in ``x.to(0)``. Its C++
asks first whether a backend from outside has a name. Simulated devices are
such a backend, so GPUs would not be the accelerator any more, and a backward
on them would end with an internal error (``pytorch/pytorch#161129``).

So where there are GPUs, the answer depends on the thread that asks::

    libtorch_cpu.so: getAccelerator()
        1  is_privateuse1_backend_registered()?  ── slot ──▶ the thread's flag
        2  is there CUDA?                        yes: CUDA

The flag is set in the thread of a simulated backward while it runs, and there
the accelerator is the simulation. In all other threads it is CUDA, as if there
were no simulation. ``call_slot`` explains what a slot is. A backward inside of
one of the other kind would need both answers, and is refused.

The slot is changed only where it is found to be that of this very function.
Where it is not, a process trains on one kind of device, and :func:`why_apart`
returns the reason. Unless GPUs are asked for by name, ``dpkit.devices`` then
gives simulated devices. From then on a backward on GPUs is refused.
"""

import ctypes
import platform
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from ctypes import c_bool
from dataclasses import dataclass
from functools import cache

import torch

from dpkit.accelerator import real_devices
from dpkit.sim.changes.call_slot import Slot, address_of, find_slot

_QUESTION = "_ZN3c1033is_privateuse1_backend_registeredEv"  # as C++ names it
# A flag that PyTorch keeps for each thread, which is off unless set. It is
# read by torch.func.functionalize alone, and is no part of a backward.
_FLAG = "_ZN2at17functionalization4impl35{}FunctionalizationReapplyViewsTLSE{}"
_GET = _FLAG.format("get", "v")
_SET = _FLAG.format("set", "b")


@dataclass(frozen=True)
class AcceleratorChoice:
    """What chooses the accelerator of PyTorch's C++ for a thread.

    Attributes:
        slot: What leads to the question whether a backend has a name.
        flag: The address of the function that answers in its place.
        get: Return the flag of this thread.
        set: Set the flag of this thread.
    """

    slot: Slot
    flag: int
    get: Callable[[], bool]
    set: Callable[[bool], None]

    def begin(self) -> None:
        """Make CUDA the accelerator where the flag is off: everywhere."""
        self.slot.lead_to(self.flag)

    @contextmanager
    def chosen(self, kind: str) -> Iterator[None]:
        """Make "cuda" or "sim" the accelerator of this thread in a block."""
        before = self.get()
        try:
            self.set(kind == "sim")
            yield
        finally:
            self.set(before)


def find_choice() -> AcceleratorChoice | str:
    """Return what chooses the accelerator, or why nothing does."""
    if sys.platform != "linux":
        return f"libraries are not Linux's (platform: {sys.platform})"
    try:
        # These keep Python's lock during a call, which takes no time.
        asking, asked = map(ctypes.PyDLL, ("libtorch_cpu.so", "libc10.so"))
    except OSError as error:
        return f"a library of PyTorch is not there ({error})"
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return "the C library is not GNU's, by whose rules tables are read"
    slot = find_slot(asking, _QUESTION)
    own = address_of(asked, _QUESTION)
    flag = address_of(asking, _GET) if hasattr(asking, _SET) else None
    if slot is None or own is None or flag is None:
        return (
            "PyTorch's libraries do not have the call that is changed "
            f"(machine: {platform.machine()})"
        )
    torch._C._get_accelerator()  # the linker fills a slot at its first use
    if slot.function != own:
        return "the call leads elsewhere than to PyTorch's function"
    try:
        slot.lead_to(own)
    except OSError as error:
        return f"the pointer of the call is read-only and stays so ({error})"
    get = getattr(asking, _GET)
    get.restype = c_bool
    set_to = getattr(asking, _SET)
    set_to.argtypes = [c_bool]
    set_to.restype = None
    return AcceleratorChoice(slot, flag, get, set_to)


_choice = cache(find_choice)


def why_apart() -> str:
    """Return why one process cannot train on GPUs and on simulated devices.

    "" means that it can.

    Example:
        >>> dpkit.sim.changes.why_apart()
        ''
    """
    found = _choice()
    return found if isinstance(found, str) else ""


class _State:
    """Whether there are GPUs besides sim, what chooses, and what runs."""

    def __init__(self) -> None:
        self.has_gpus = False
        self.choice: AcceleratorChoice | None = None
        self.running: Counter[str] = Counter()  # kind -> how many backwards
        self.lock = threading.Lock()


_state = _State()


def choose_gpus() -> None:
    """Make GPUs, where there are some, the accelerator outside of sim.

    Nothing takes this back: while no backend has a name, the answer of C++ is
    the same without it.
    """
    _state.has_gpus = bool(real_devices())
    found = _choice() if _state.has_gpus else None
    if isinstance(found, AcceleratorChoice):
        found.begin()
        _state.choice = found


class _Thread(threading.local):
    """What a thread of Python does."""

    is_on_sim = False  # whether numbers are those of simulated devices


_thread = _Thread()


def is_on_sim() -> bool:
    """Return whether this thread is in a block of :func:`on_sim`."""
    return _thread.is_on_sim


@contextmanager
def on_sim() -> Iterator[None]:
    """Make the simulation the accelerator of this thread in a block."""
    before = _thread.is_on_sim
    choice = _state.choice
    _thread.is_on_sim = True
    try:
        with nullcontext() if choice is None else choice.chosen("sim"):
            yield
    finally:
        _thread.is_on_sim = before


def has_gpus() -> bool:
    """Return whether there were GPUs when sim was registered."""
    return _state.has_gpus


@contextmanager
def backward_on(kinds: Collection[str]) -> Iterator[None]:
    """Make the accelerator right for a backward in the block.

    Args:
        kinds: The kinds of all devices in the graph: "cpu", "cuda", "sim".

    Raises:
        RuntimeError: both kinds would have to be the accelerator; or GPUs,
            where they cannot be.
    """
    used = {"cuda", "sim"} & set(kinds)
    if len(used) == 2:
        raise RuntimeError(
            "a backward cannot pass from GPUs to simulated devices, or back; "
            "detach() what one gives to the other"
        )
    choice = _state.choice
    if not used:
        yield
        return
    if choice is None:
        if "cuda" in used:
            raise RuntimeError(
                "there is no backward on GPUs in a process that has used "
                f"simulated devices (reason: {why_apart()}); use another "
                "process, in which DPKIT_DEVICES is cuda"
            )
        yield
        return
    (kind,) = used
    _begin(kind)
    try:
        with choice.chosen(kind):
            yield
    finally:
        with _state.lock:
            _state.running[kind] -= 1


def _begin(kind: str) -> None:
    """Count a backward, unless it is inside of one of the other kind.

    That one may be on any thread: the engine has one for each GPU.
    """
    other = "cuda" if kind == "sim" else "sim"
    inside = torch._C._current_graph_task_id() != -1
    with _state.lock:
        if inside and _state.running[other]:
            raise RuntimeError(
                "a backward on GPUs and one on simulated devices cannot run "
                f"inside of each other (begun: {kind}, running: {other})"
            )
        _state.running[kind] += 1
