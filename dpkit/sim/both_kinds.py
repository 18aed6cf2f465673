"""GPUs and simulated devices in one process.

PyTorch has one *accelerator* in a process: the kind of device whose streams
the autograd engine knows, and which a number means, as in ``x.to(0)``. Its C++
asks first whether a backend from outside has a name. Simulated devices are
such a backend, so GPUs would not be the accelerator any more, and a backward
on them would end with an internal error (``pytorch/pytorch#161129``).

So where there are GPUs, the accelerator is as if there were no simulation::

    libtorch_cpu.so: getAccelerator()
        1  is_privateuse1_backend_registered()?  ── slot ──▶ always 0: no
        2  is there CUDA?                        yes: CUDA

and during a simulated backward it is the simulation, because the slot leads to
PyTorch's own function. ``call_slot`` explains what a slot is. Two backwards at
the same time, one of each kind, would need both answers, and are refused.

The slot is changed only where it is found to be that of this very function.
Where it is not, a process trains on one kind of device, and :func:`why_apart`
returns the reason. Unless GPUs are asked for by name, ``dpkit.devices`` then
gives simulated devices. From then on a backward on GPUs is refused.
"""

import ctypes
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

from dpkit.accelerator import real_devices
from dpkit.sim.call_slot import address_of, find_slot

_QUESTION = "_ZN3c1033is_privateuse1_backend_registeredEv"  # as C++ names it
_RETURNS_0 = "pthread_getconcurrency"  # a hint to the C library: never given


@dataclass(frozen=True)
class AcceleratorChoice:
    """The slot, and the addresses by which it chooses the accelerator."""

    slot: ctypes.c_uint64
    of_sim: int
    of_gpus: int

    def choose(self, kind: str) -> None:
        """Make "cuda" or "sim" the accelerator of PyTorch's C++."""
        self.slot.value = self.of_sim if kind == "sim" else self.of_gpus


def find_choice() -> AcceleratorChoice | str:
    """Return what chooses the accelerator, or why nothing does."""
    if sys.platform != "linux":
        return f"libraries are not Linux's (platform: {sys.platform})"
    try:
        asking, asked = map(ctypes.CDLL, ("libtorch_cpu.so", "libc10.so"))
    except OSError as error:
        return f"a library of PyTorch is not there ({error})"
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return "the C library is not GNU's, by whose rules tables are read"
    slot, own = find_slot(asking, _QUESTION), address_of(asked, _QUESTION)
    zero = address_of(ctypes.CDLL(None), _RETURNS_0)
    if slot is None or own is None or zero is None:
        return "PyTorch's libraries do not have the call that is changed"
    torch._C._get_accelerator()  # the linker fills a slot at its first use
    if slot.value != own:
        return "the call leads elsewhere than to PyTorch's function"
    if ctypes.CDLL(None).pthread_getconcurrency() != 0:
        return f"another program part has used {_RETURNS_0}"
    return AcceleratorChoice(slot, of_sim=own, of_gpus=zero)


_choice = cache(find_choice)


def why_apart() -> str:
    """Return why one process cannot train on GPUs and on simulated devices.

    "" means that it can.
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
    """Make GPUs, where there are some, the accelerator besides sim.

    Nothing takes this back: while no backend has a name, the answer of C++ is
    the same without it.
    """
    _state.has_gpus = bool(real_devices())
    found = _choice() if _state.has_gpus else None
    if isinstance(found, AcceleratorChoice):
        found.choose("cuda")
        _state.choice = found


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
    if not used:
        yield
        return
    (kind,) = used
    _begin(kind)
    try:
        yield
    finally:
        _end(kind)


def _begin(kind: str) -> None:
    """Make a kind the accelerator, unless one of the other kind runs."""
    other = "cuda" if kind == "sim" else "sim"
    with _state.lock:
        if _state.choice is None:
            if kind == "cuda":
                raise RuntimeError(
                    "there is no backward on GPUs in a process that has used "
                    f"simulated devices (reason: {why_apart()}); use another "
                    "process, in which DPKIT_DEVICES is cuda"
                )
            return
        if _state.running[other]:
            raise RuntimeError(
                "a backward on GPUs and one on simulated devices cannot run "
                f"at the same time (begun: {kind}, running: {other})"
            )
        _state.running[kind] += 1
        _state.choice.choose(kind)


def _end(kind: str) -> None:
    """Make GPUs the accelerator again after the last backward of a kind."""
    with _state.lock:
        if _state.choice is None:
            return
        _state.running[kind] -= 1
        if not _state.running[kind]:
            _state.choice.choose("cuda")
