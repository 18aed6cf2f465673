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

In forward PyTorch asks the guard as well: there Ctrl-C waits for the end of
the call of PyTorch, and a rank is ended at its next operation.
"""

import _thread
import ctypes
import signal
import sys
import threading
import time
import traceback
from _signal import getsignal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.changes.mixed_backends import backward_on, has_gpus
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.operators.operations import device_mismatch
from dpkit.sim.tracing import mark_leaves, tracing

_engine: Callable[..., Any] = torch.autograd.graph._engine_run_backward


class _Backward(threading.local):
    """The simulated backward of this thread."""

    running = False  # whether there is one
    error: BaseException | None = None  # the first that was put aside
    interrupted = False  # by Ctrl-C, which waits for its end


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
    if not has_gpus():
        engine = _run_simulated if has_simulated(outputs) else _engine
        return engine(outputs, *args, **kwargs)
    kinds = _kinds_of_device(outputs)  # walks the graph: once
    engine = _run_simulated if "sim" in kinds else _engine
    with backward_on(kinds):
        return engine(outputs, *args, **kwargs)


def _run_simulated(
    outputs: Sequence[Any], gradients: Sequence[Any], *args: Any, **kwargs: Any
) -> Any:
    """Run the engine on this thread; raise what was put aside, if anything."""
    # PyTorch would start a thread per device of a backend, and believes that
    # this backend has one device: it would abort at the second.
    _check_gradients(outputs, gradients)
    poll()
    before = _backward.running, _backward.error
    _backward.running = True
    _backward.error = None
    clock = simulation.clock
    leaves = []
    if tracing():
        leaves = [x.variable for x in nodes(outputs) if hasattr(x, "variable")]
        simulation.memory.mark(list(gradients), "gradients")
    clock.begin_backward()
    races = simulation.races
    if races is not None:
        races.begin_backward()
    on_this_thread = torch.autograd.set_multithreading_enabled(False)
    try:
        with on_this_thread:
            result = _engine(outputs, gradients, *args, **kwargs)
    except BaseException as error:
        put_aside(error)
    finally:
        first = _backward.error
        interrupted = _backward.interrupted
        _backward.running, _backward.error = before
        if not _backward.running:
            _backward.interrupted = False
        clock.end_backward()
        if races is not None:
            races.end_backward()
    if first is not None:
        if not _backward.running:
            _free_rest()
        try:
            raise first
        finally:
            del first  # or it would keep this frame, and the frame it
    mark_leaves(leaves)
    if interrupted and not _backward.running:
        raise KeyboardInterrupt
    return result


with torch.inference_mode(False):
    # It is a result, its gradient, and what the gradient is asked for.
    _SHORTEST = torch.ones((), device="cpu", requires_grad=True)


def _free_rest() -> None:
    """Free the gradients that a failed backward has not come to.

    PyTorch's engine keeps them until the next backward of the thread.
    """
    torch.autograd.grad(_SHORTEST, _SHORTEST, _SHORTEST)


def _check_gradients(outputs: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Refuse the gradient of an output that lies on another device."""
    for output, gradient in zip(outputs, gradients):
        if isinstance(output, Tensor) and gradient is not None:
            if gradient.device != output.device:
                raise RuntimeError(
                    device_mismatch(output.device, gradient.device)
                )


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


def _kinds_of_device(outputs: Sequence[Any]) -> set[str]:
    """Return the kinds of all devices that take part in a backward."""
    kinds = {x.device.type for x in outputs if isinstance(x, Tensor)}
    for node in nodes(outputs):
        kinds |= {parts.device.type for parts in node._input_metadata}
    return kinds


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


_MAIN = threading.main_thread().ident
_NO_CALL = 0, 0
_calls = [_NO_CALL]  # the last of PyTorch: the frame with it, and where in it
_pending_errors: dict[
    int, type[BaseException] | None
] = {}  # by thread; None: raised
_pending_since: dict[int, float] = {}  # by thread, as of time.monotonic
POLLED_WITHIN = 1.0  # seconds; a thread without operations polls later


def poll() -> None:
    """Raise what another thread has asked this one to raise.

    Each operation calls it at its start. In the main thread it notes where in
    the program that is, so that Ctrl-C waits for the end of the operation.

    Raises:
        BaseException: the error of :func:`raise_outside`, such as ``Ended``.
    """
    number = threading.get_ident()
    if number == _MAIN:
        frame = sys._getframe(2)
        _calls[0] = id(frame), frame.f_lasti
        # signal.getsignal would take 6 µs, to find a name for the handler
        if getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
    elif _pending_errors and (error := _pending_errors.get(number)):
        _pending_errors[number] = None
        raise error


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not inside of a call of PyTorch.

    There it comes again after 10 ms, and is raised if no call has begun since.
    """
    if _backward.running:
        _backward.interrupted = True
    elif frame and (
        (id(frame), frame.f_lasti) == _calls[0] or frame.f_code is _ASKED
    ):
        _calls[0] = _NO_CALL
        again = threading.get_ident(), number
        threading.Timer(0.01, signal.pthread_kill, again).start()
    else:
        raise KeyboardInterrupt


_ASKED: CodeType = Guard.type_.__code__


def raise_outside(number: int, error: type[BaseException]) -> bool:
    """Raise an error in a thread of that number, at its next operation.

    If none has come in a second, and it is called again: at the next line of
    Python. That line must not be one of the guard, or the process would end.
    So it is not done in a backward; and outside of one PyTorch asks the guard
    only at the start of an operation, which takes less than a second.

    Return whether the thread has the error.
    """
    if number not in _pending_errors:
        _pending_errors[number] = error
        _pending_since[number] = time.monotonic()
    elif _pending_errors[number] and not _is_in_backward(number):
        if time.monotonic() - _pending_since[number] > POLLED_WITHIN:
            _pending_errors[number] = None
            if _SIGN_STOPS_TRACED and sys.gettrace():
                _in_untraced_thread(partial(_raise_and_clear, number, error))
            else:
                _raise_at_next_line(number, error)
    return _pending_errors[number] is None


class _TakenBack(BaseException):
    """Is raised in place of an error that is not to be raised any more."""


def raise_nothing(number: int) -> None:
    """Take back an error of :func:`raise_outside` that is not raised yet.

    ``number`` is that of the thread that calls this.
    """
    if number not in _pending_errors:
        return
    is_with_python = _pending_errors.pop(number) is None
    if is_with_python:
        _raise_and_catch()


# CPython 3.11 has one sign, for all threads, that a thread has an error to
# raise at its next line. It stays until some thread raises its own. Meanwhile
# each thread that is traced, as by pdb or coverage, hangs at the next function
# that it calls: for ever, if the thread with the error waits for a lock.
_SIGN_STOPS_TRACED = sys.version_info < (3, 12)


def let_traced_threads_go_on() -> None:
    """Take away CPython's sign, although a thread has not raised its error.

    That thread keeps the error, and raises it once it has been at work for
    some milliseconds.
    """
    if _SIGN_STOPS_TRACED:
        _in_untraced_thread(_raise_and_catch)


def _raise_and_clear(number: int, error: type[BaseException]) -> None:
    """Raise an error in another thread, and take CPython's sign away."""
    _raise_at_next_line(number, error)
    time.sleep(0.05)  # a thread that is at work raises it by then
    _raise_and_catch()


def _raise_and_catch() -> None:
    """Raise an error in this thread, in place of any before it; catch it.

    This takes CPython's sign away. That CPython can set the error of a thread
    to nothing is no help, as CPython 3.11 then keeps the sign.
    """
    try:
        _raise_at_next_line(threading.get_ident(), _TakenBack)
        while True:
            pass
    except _TakenBack:
        pass


def _in_untraced_thread(call: Callable[[], None]) -> None:
    """Wait for a call in a thread that nobody traces or interrupts."""
    is_done = threading.Lock()

    def run() -> None:
        call()
        is_done.release()

    is_done.acquire()
    _thread.start_new_thread(run, ())  # threading would have it traced
    is_done.acquire()


def _is_in_backward(number: int) -> bool:
    frames = traceback.walk_stack(sys._current_frames().get(number))
    return any(frame.f_code is run_backward.__code__ for frame, _ in frames)


def _raise_at_next_line(number: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(number), ctypes.py_object(error)
    )
