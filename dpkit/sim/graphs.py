"""CUDA graphs: ``torch.sim.CUDAGraph``, ``torch.sim.graph``.

A graph is captured once and replayed often::

    capture    host     |launch|launch|launch|     nothing runs on the device
    replay     host     |launch|                   one launch for all of them
               device          |= a =|= b =|= c =|

The device executes nothing during a capture, so all values that were there
before are the same afterwards. A replay executes the same operators on the
same memory: what the program has written there since is their input.

``_Times`` stands in for the clock, and notes what each operator takes.
``_Values`` notes the operators, and with which memory they work.

Example:
    >>> (device,) = dpkit.devices(1, "sim")
    >>> x = torch.ones(3, device=device)
    >>> graph = torch.sim.CUDAGraph()
    >>> with torch.sim.graph(graph):
    ...     y = 2 * x
    >>> _ = x.fill_(5)
    >>> graph.replay()
    >>> y
    tensor([10., 10., 10.], device='sim:0')
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map_only

from dpkit.sim.containers import tensors_in
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import current_device
from dpkit.sim.kernels.own import run_plain
from dpkit.sim.operators.operations import Args, Kwargs, Operator
from dpkit.sim.operators.random_numbers import get_rng_state, set_rng_state
from dpkit.sim.streams.sending import thread
from dpkit.sim.streams.streams import SimStream, stream, wait_for_device

_pools = count(1)


def is_capturing() -> bool:
    """Return whether a graph is being captured."""
    return isinstance(simulation.clock, _Times)


def graph_pool_handle() -> tuple[int, int]:
    """Return a name for memory that graphs share; here each has its own."""
    return 0, next(_pools)


class _Times:
    """What stands in for the clock during a capture.

    Args:
        clock: The clock, which the host goes on paying for launches.
        device: The number of the device whose work is captured.
    """

    def __init__(self, clock: Any, device: int) -> None:
        self._clock = clock
        self._stream = device, clock.current[device]
        self.kernels: list[tuple[tuple[int, str], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def compute(
        self,
        device: int,
        name: str,
        *,
        seconds: float,
        num_bytes: int = 0,
        flops: int = 0,
        launches: int = 1,
        phase: str = "",
    ) -> None:
        """Note a kernel, in place of issuing it."""
        if (device, self._clock.current[device]) != self._stream:
            _not_simulated("work on several streams or devices")
        spent = launches * self._clock.cluster.host.launch_seconds
        self._clock.hosts.busy(device, name, spent)
        how = {
            "seconds": seconds,
            "num_bytes": num_bytes,
            "flops": flops,
            "phase": phase,
        }
        self.kernels.append(((device, name), how))

    def copy(self, *ends: Any, blocking: bool = False, **_: Any) -> NoReturn:
        """Refuse a copy between devices, or to or from the host."""
        if blocking:
            _not_permitted("a copy that the host waits for")
        _not_simulated("a copy between devices, or to or from the host")

    def collective(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse a collective."""
        _not_simulated("a collective")

    def mark_stream(self, *_: Any) -> NoReturn:
        """Refuse an event, by which streams wait for each other."""
        _not_simulated("an event")

    def wait(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to wait: what is captured will not have run."""
        _not_permitted("the host waits for the device")


def _not_permitted(what: str) -> NoReturn:
    raise RuntimeError(
        "CUDA error: operation not permitted when stream is capturing "
        f"(operation: {what}); leave it out of the graph"
    )


def _not_simulated(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what} inside of a CUDA graph is not simulated; leave it out of "
        "the graph"
    )


def check_no_message() -> None:
    """Refuse what ranks do together, inside of a graph."""
    if is_capturing():
        _not_simulated("a collective, or a message between ranks,")


def _check_optimizer(optimizer: Any, *_: Any) -> None:
    """Refuse an optimizer whose host counts the steps: a replay would not."""
    groups = optimizer.param_groups
    if not all(group.get("capturable", True) for group in groups):
        raise RuntimeError(
            "Attempting CUDA graph capture of step() for an instance of "
            f"{type(optimizer).__name__} but param_groups' capturable is "
            "False."
        )


# -- values


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies: the number of its storage, and where in that."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Values:
    """The operators of a graph, and the storages that they work with.

    Storages that were there before the capture are kept. The capture makes
    others. Some are alive afterwards, because the program holds them: a replay
    writes there. The rest are made again in each replay.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Operator, Args, Kwargs, list[_Place]]] = []
        self._kept: dict[int, torch.UntypedStorage] = {}
        self._before: dict[int, Tensor] = {}  # the bytes of these
        self._made: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        # An address -> the storage there and its number. A later storage may
        # have the address of one that is gone.
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def run(self, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        """Run an operator of the capture, and note it."""
        simulation.graph = None
        try:
            if simulation.holder == "meta":
                return run_plain(operator, args, kwargs)
            given = tree_map_only(Tensor, self._given, (args, kwargs))
            out = run_plain(operator, args, kwargs)
        finally:
            simulation.graph = self
        places = [self._made_by(tensor) for tensor in tensors_in(out)]
        if operator.kind != "view":
            self.calls.append((operator, *given, places))
        return out

    def restore(self) -> None:
        """Give the storages that are kept the bytes of before the capture."""
        for number, before in self._before.items():
            _bytes(self._kept[number]).copy_(before)
        self._before.clear()
        self._known.clear()

    @torch.no_grad()
    def replay(self) -> None:
        """Run the operators again, with the same storages."""
        storages = dict(self._kept)
        for number, ref in self._made.items():
            if (storage := ref()) is not None:
                storages[number] = storage

        def tensor_at(place: _Place) -> Tensor:
            empty = torch.empty(
                0, dtype=place.dtype, device=simulation.backing
            )
            where = (place.offset, place.size, place.stride)
            return empty.set_(storages[place.storage], *where)

        for operator, args, kwargs, places in self.calls:
            args, kwargs = tree_map_only(_Place, tensor_at, (args, kwargs))
            out = run_plain(operator, args, kwargs)
            for place, tensor in zip(places, tensors_in(out), strict=True):
                found = tensor.untyped_storage()
                wanted = storages.setdefault(place.storage, found)
                if wanted._cdata != found._cdata:
                    tensor_at(place).copy_(tensor)

    def _given(self, tensor: Tensor) -> Any:
        """Return the place of an argument; a tensor of the host is copied."""
        storage = tensor.untyped_storage()
        number = self._number(storage)
        if number is None:
            if simulation.memory.device_of(storage) is None:
                return tensor.clone()  # its number is part of the launch
            number = self._add(storage)
            self._kept[number] = storage
            self._before[number] = _bytes(storage).clone()
        return _place(number, tensor)

    def _made_by(self, tensor: Tensor) -> _Place:
        """Return the place of a result."""
        storage = tensor.untyped_storage()
        number = self._number(storage)
        if number is None:
            number = self._add(storage)
            self._made[number] = weakref.ref(storage)
        return _place(number, tensor)

    def _number(self, storage: torch.UntypedStorage) -> int | None:
        ref, number = self._known.get(storage._cdata, (lambda: None, None))
        return None if ref() is None else number

    def _add(self, storage: torch.UntypedStorage) -> int:
        number = len(self._kept) + len(self._made)
        self._known[storage._cdata] = weakref.ref(storage), number
        return number


def _place(number: int, tensor: Tensor) -> _Place:
    if tensor.is_conj() or tensor.is_neg():
        _not_simulated("a conjugate that has not been computed")
    return _Place(
        number,
        tensor.dtype,
        size=tuple(tensor.shape),
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
    )


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage)


# -- the graph


class CUDAGraph:
    """A graph of the work of one device, as ``torch.cuda.CUDAGraph``.

    It is for one stream of one device. While it lives, the device keeps the
    memory that its operators need besides that of the tensors that are held.
    """

    __module__ = "torch.cuda"

    def __init__(self, keep_graph: bool = False) -> None:
        self._pool = graph_pool_handle()
        self._finish: Callable[[], object] | None = None  # of a capture
        self.reset()

    def reset(self) -> None:
        """Forget what was captured, and give its memory back."""
        self._clock: Any = None  # that of the capture
        self._kernels: list[Any] = []
        self._values = _Values()
        self._scratch: Tensor | None = None

    def pool(self) -> tuple[int, int]:
        """Return the name of its memory."""
        return self._pool

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global"
    ) -> None:
        """Capture what is launched on the current stream from now on."""
        if self._clock is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To "
                "capture a new graph, create a new instance."
            )
        if is_capturing():
            _not_permitted("to begin another capture")
        if thread.rank is not None and not thread.is_process:
            _not_simulated("a rank that is a thread")
        if simulation.races is not None:
            _not_simulated("a search for races")
        self._device = current_device()
        capturing = self._capturing(self._device)
        capturing.__enter__()
        self._finish = lambda: capturing.__exit__(None, None, None)

    def capture_end(self) -> None:
        """End the capture."""
        if self._finish is None:
            raise RuntimeError("no graph is being captured")
        finish, self._finish = self._finish, None
        finish()

    def replay(self) -> None:
        """Launch the work of the graph, on the current stream, at once."""
        if self._clock is None or self._finish is not None:
            raise RuntimeError(
                "Called CUDAGraph::replay without a preceding successful "
                "capture."
            )
        if is_capturing():
            _not_simulated("a graph")
        clock = simulation.clock
        if clock is not self._clock:
            raise RuntimeError(
                "the simulated hardware has changed since the capture; "
                "capture the graph again"
            )
        self._values.replay()
        with clock.lock:
            spent = clock.cluster.host.launch_seconds
            clock.hosts.busy(self._device, "CUDA graph", spent)
            for (device, name), how in self._kernels:
                clock.compute(device, name, launches=0, **how)

    @contextmanager
    def _capturing(self, device: int) -> Iterator[None]:
        clock, memory = simulation.clock, simulation.memory
        peak, memory.peak[device] = memory.peak[device], memory.live[device]
        random = get_rng_state(device)
        times = _Times(clock, device)
        self._clock, simulation.clock = clock, times
        simulation.graph = self._values
        hook = register_optimizer_step_pre_hook(_check_optimizer)
        try:
            yield
        finally:
            hook.remove()
            simulation.clock, simulation.graph = clock, None
            self._values.restore()
            self._kernels = times.kernels
            set_rng_state(random, device)
            needed = memory.peak[device]
            rest = needed - memory.live[device]
            memory.peak[device] = max(peak, needed)
            if rest:  # it has a size, and no bytes
                self._scratch = torch.empty(
                    rest, dtype=torch.uint8, device="meta"
                )
                memory.hold(self._scratch, device)


class graph:  # noqa: N801
    """Capture a block of a program, as ``torch.cuda.graph`` does.

    Args:
        cuda_graph: What is captured belongs to it.
        pool: The name of memory that graphs share; here each has its own.
        stream: The stream that captures; None: its own.
        capture_error_mode: What CUDA refuses in other threads.
    """

    __module__ = "torch.cuda"

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: SimStream | None = None,
        capture_error_mode: str = "global",
        **_: Any,
    ) -> None:
        self._graph = cuda_graph
        self._stream = stream

    def __enter__(self) -> None:
        wait_for_device()
        gc.collect()
        self._block = stream(self._stream or SimStream())
        self._block.__enter__()
        try:
            self._graph.capture_begin()
        except BaseException:
            self._block.__exit__(None, None, None)
            raise

    def __exit__(self, *error: Any) -> None:
        try:
            self._graph.capture_end()
            if error[0] is not None:
                self._graph.reset()
        finally:
            self._block.__exit__(None, None, None)
