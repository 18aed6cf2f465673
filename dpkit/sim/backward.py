"""Backward on simulated devices: on one thread, and its errors arrive.

A backward in which no simulated tensor takes part is PyTorch's own.

In the others the autograd engine asks the device guard of a backend for its
type, also while an exception passes through. The guard of a Python backend is
Python, and Python called with an exception on its way ends the process. So

- the guard puts such an exception aside, and :func:`run_backward`, which
  stands around the engine, raises it when the engine is done;
- an exception inside an operation does not leave it: it is put aside, and the
  engine gets a placeholder to carry on with;
- Ctrl-C waits for the end of backward.
"""

import ctypes
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.configuration import simulation
from dpkit.sim.operations import mixture
from dpkit.sim.tracing import mark_leaves, tracing

_engine: Callable[..., Any] = torch.autograd.graph._engine_run_backward


class _Backward(threading.local):
    """The simulated backward of this thread."""

    running = False  # whether there is one
    error: BaseException | None = None  # the first that was put aside


_backward = _Backward()


def in_backward() -> bool:
    """Return whether a simulated backward of this thread is running."""
    return _backward.running


def put_aside(error: BaseException) -> None:
    """Keep the first exception of this backward; later ones follow from it."""
    if _backward.error is None:
        _backward.error = error


def run_backward(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Stand in for PyTorch's engine, and call it."""
    if not has_simulated(outputs):
        return _engine(outputs, *args, **kwargs)
    return _run_simulated(outputs, *args, **kwargs)


def _run_simulated(
    outputs: Sequence[Any], gradients: Sequence[Any], *args: Any, **kwargs: Any
) -> Any:
    """Run the engine on this thread; raise what was put aside, if anything."""
    # PyTorch would start a thread per device of a backend, and believes that
    # this backend has one device: it would abort at the second.
    _check_gradients(outputs, gradients)
    before = _backward.running, _backward.error
    _backward.running, _backward.error = True, None
    interrupts: list[int] = []
    clock = simulation.clock
    leaves = []
    if tracing():
        leaves = [x.variable for x in nodes(outputs) if hasattr(x, "variable")]
        simulation.memory.mark(list(gradients), "gradients")
    clock.begin_backward()
    on_this_thread = torch.autograd.set_multithreading_enabled(False)
    try:
        with on_this_thread, _uninterrupted(interrupts):
            result = _engine(outputs, gradients, *args, **kwargs)
    except BaseException as error:
        put_aside(error)
    finally:
        first = _backward.error
        _backward.running, _backward.error = before
        clock.end_backward()
    if first is not None:
        try:
            raise first
        finally:
            del first  # or it would keep this frame, and the frame it
    mark_leaves(leaves)
    if interrupts:
        raise KeyboardInterrupt
    return result


def _check_gradients(outputs: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Refuse the gradient of an output that lies on another device."""
    for output, gradient in zip(outputs, gradients):
        if isinstance(output, Tensor) and gradient is not None:
            if gradient.device != output.device:
                raise RuntimeError(mixture(output.device, gradient.device))


def nodes(outputs: Sequence[Any]) -> Iterator[Any]:
    """Yield every node behind tensors, or edges of the graph, each once."""
    found: list[Any] = [
        x.grad_fn if isinstance(x, Tensor) else x.node for x in outputs
    ]
    seen: set[Any] = {None}
    while found:
        node = found.pop()
        if node not in seen:
            seen.add(node)
            yield node
            found.extend(following for following, _ in node.next_functions)


def has_simulated(outputs: Sequence[Any]) -> bool:
    """Return whether a simulated tensor takes part in a backward."""
    if any(isinstance(x, Tensor) and x.device.type == "sim" for x in outputs):
        return True
    return any(
        parts.device.type == "sim"
        for node in nodes(outputs)
        for parts in node._input_metadata
    )


@contextmanager
def _uninterrupted(interrupts: list[int]) -> Iterator[None]:
    """Collect Ctrl-C in a list instead of raising it, on the main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (on_main and usual):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Where Python keeps the exception on its way: type, value and traceback. While
# there is one, calls made from Python fail. PyErr_Fetch does not, if nothing
# has to be converted for it.
_fetch = ctypes.pythonapi.PyErr_Fetch
_fetch.restype = None
_kept = [ctypes.c_void_p() for _ in range(3)]
_slots = tuple(ctypes.c_void_p(ctypes.addressof(slot)) for slot in _kept)
_PRIVATE_USE = torch._C._autograd.DeviceType.PrivateUse1


class Guard(torch._C._acc.DeviceGuard):
    """The device guard, which puts aside the exception it is called with."""

    def type_(self) -> Any:
        """Return the type of device, whatever is on its way."""
        _fetch(*_slots)
        if _kept[0].value:
            _put_fetched_aside()
        return _PRIVATE_USE


def _put_fetched_aside() -> None:
    """Put aside what :data:`_fetch` has left in the slots."""
    found: list[Any] = [
        ctypes.cast(slot, ctypes.py_object).value if slot else None
        for slot in _kept
    ]
    kind, value, traceback = found
    error = value if isinstance(value, BaseException) else kind(value)
    put_aside(error.with_traceback(traceback))
    for slot in _kept:
        if slot:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object.from_buffer(slot))
        slot.value = None


def raise_outside(number: int, error: type[BaseException] | None) -> bool:
    """Raise an error in a thread of that number, at its next line of Python.

    Not in a backward: where C++ has called Python, that would end the process.
    Return whether it will be raised. None takes back what is not raised yet.
    """
    frames = traceback.walk_stack(sys._current_frames().get(number))
    if any(frame.f_code is run_backward.__code__ for frame, _ in frames):
        return False
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(number), raised)
    return True
