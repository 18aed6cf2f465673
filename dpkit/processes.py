"""Real processes: one function on every rank, and what each rank returns.

::

    launch(fn, 3)             rank 0            rank 1            rank 2
      │ job ──────────▶ a new Python      a new Python      a new Python
      │                 joins the group   joins the group   joins the group
      │                 fn(*args)  ◀────▶ fn(*args)  ◀────▶ fn(*args)
      ◀── values ────── value 0           value 1           value 2

The ranks are started as new programs, not by ``multiprocessing``: a script,
a notebook or standard input can then call :func:`launch` on its first line,
for no rank runs the calling program again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist

Process = subprocess.Popen[bytes]
PROGRAM = "from dpkit.processes import run_rank; run_rank()"
# How often the parent looks, and how long it waits after a failure for more
# to show: the end of one rank makes its partners fail, and it is to blame.
LOOK_SECONDS, SETTLE_SECONDS = 0.01, 0.1


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str | None = None,
    timeout_seconds: float = 60.0,
) -> list[Any]:
    """Run ``fn(*args)`` in ``world_size`` processes; return their values.

    In each process the default process group is there before ``fn`` is
    called: ``torch.distributed.get_rank()`` tells the ranks apart, and
    :func:`dpkit.processes.rank_device` where their tensors belong. What they
    print comes in any order, and from a notebook not onto the page: return
    values, and print those. A rank computes with one thread, unless
    ``OMP_NUM_THREADS`` or the function says otherwise. When one rank fails,
    the others are ended at once. No process and no file is left behind.

    Args:
        fn: A function at the top level of a module, which each rank imports.
        world_size: The number of processes.
        *args: What every rank is given a copy of; tensors on the CPU.
        backend: "gloo" (on the CPU) or "nccl" (a GPU for each rank). None
            means NCCL where there are ``world_size`` GPUs and
            ``DPKIT_DEVICES`` does not ask for other devices, else gloo.
        timeout_seconds: How long all of it may take, the start of the
            processes included.

    Returns:
        What each rank returned, in order of rank; tensors on the CPU.

    Raises:
        ValueError: ``world_size`` is below one, the ranks cannot import the
            function or something among its arguments, a tensor does not lie
            on the CPU, or there is no such backend.
        RuntimeError: a rank raised an exception, whose traceback the message
            holds, or ended without a result.
        TimeoutError: some ranks had not returned in time.

    Example:
        >>> import torch.distributed as dist
        >>> from dpkit.processes import launch
        >>> launch(dist.get_rank, 3)
        [0, 1, 2]
    """
    if world_size < 1:
        raise ValueError(
            f"the number of processes is below one (world_size: {world_size})"
        )
    if backend not in (None, *dist.Backend.backend_list):
        raise ValueError(
            f"unknown backend (backend: {backend!r}, known: "
            f"{', '.join(dist.Backend.backend_list)})"
        )
    with TemporaryDirectory(prefix="dpkit-") as name, ExitStack() as stack:
        folder = Path(name)
        with (folder / "job").open("wb") as file:
            _Pickler(file).dump((fn, args, backend))
        processes = []
        for rank in range(world_size):
            process = stack.enter_context(_start(folder, rank, world_size))
            stack.callback(process.kill)  # without effect on one that ended
            processes.append(process)
        _wait(processes, folder, timeout_seconds)
        return [
            torch.load(folder / f"value-{r}", "cpu", weights_only=False)
            for r in range(world_size)
        ]


def rank_device() -> torch.device:
    """Return the device of this rank: a GPU of its own, or the CPU."""
    if dist.get_backend() == "gloo":
        return torch.device("cpu")
    index = torch.accelerator.current_device_index()
    return torch.device(_accelerator(), index)


class _Pickler(pickle.Pickler):
    """A pickler that refuses what another process could not import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            raise ValueError(
                "a tensor for other processes has to lie on the CPU (shape: "
                f"{tuple(obj.shape)}, device: {obj.device}); .cpu() copies it"
            )
        if isinstance(obj, (FunctionType, type)):
            # "<lambda>" and "f.<locals>.g" are no names to import by.
            if obj.__module__ == "__main__" or "<" in obj.__qualname__:
                raise ValueError(
                    "another process cannot import the given function or "
                    f"class (name: {obj.__qualname__}, module: "
                    f"{obj.__module__}); put it into a module, at its top "
                    "level"
                )
        return NotImplemented


def _start(folder: Path, rank: int, world_size: int) -> Process:
    """Start the process of a rank."""
    environment = {
        "OMP_NUM_THREADS": "1",  # more threads than cores would spin
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(folder)],
        env=environment,
        stdin=subprocess.PIPE,  # its end tells the rank that we are gone
        start_new_session=True,  # Ctrl-C is for the parent, which ends them
    )


def _wait(
    processes: Sequence[Process], folder: Path, timeout_seconds: float
) -> None:
    """Wait until all ranks have left their values; raise if one does not."""
    deadline = time.monotonic() + timeout_seconds
    running = list(range(len(processes)))
    while running:
        if time.monotonic() > deadline:
            raise TimeoutError(
                "some ranks had not returned in time (ranks: "
                f"{', '.join(map(str, running))} of {len(processes)}, "
                f"timeout_seconds: {timeout_seconds:g})"
            )
        time.sleep(LOOK_SECONDS)
        ended = [r for r in running if processes[r].poll() is not None]
        if not all((folder / f"value-{r}").exists() for r in ended):
            time.sleep(SETTLE_SECONDS)
            raise RuntimeError(_failure(processes, folder))
        running = [r for r in running if r not in ended]


def _failure(processes: Sequence[Process], folder: Path) -> str:
    """Tell of the rank that failed first."""
    codes = [process.poll() for process in processes]
    found = {path.name for path in folder.iterdir()}
    for rank, code in enumerate(codes):
        if code is not None and not {f"value-{rank}", f"error-{rank}"} & found:
            # Its partners' exceptions, if any, are what this led to.
            how = f"exit code: {code}"
            if code < 0:
                how = f"signal: {-code}, {signal.strsignal(-code)}"
            return (
                f"a rank ended without a result (rank: {rank} of "
                f"{len(codes)}, {how})"
            )
    _, rank, text = min(torch.load(path) for path in folder.glob("error-*"))
    return (
        f"a rank raised an exception (rank: {rank} of {len(codes)})\n\n{text}"
    )


def run_rank() -> None:
    """Do the job of one rank; the program of the processes of launch()."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    status = 1
    try:
        fn, args, backend = pickle.loads((folder / "job").read_bytes())
        _join(folder, rank, backend)
        value = fn(*args)
        dist.destroy_process_group()
        _leave(folder / f"value-{rank}", value)
        status = 0
    except BaseException as error:  # sys.exit() in a rank is a failure too
        text = "".join(traceback.format_exception(error)).rstrip()
        _leave(folder / f"error-{rank}", (time.monotonic(), rank, text))
    sys.stdout.flush()
    os._exit(status)  # at once: no thread or handler may hold it back


def _end_with_parent() -> None:
    """Wait until the parent is gone, which closes our input; then end."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _join(folder: Path, rank: int, backend: str | None) -> None:
    """Join the process group of all ranks, which meet at a file."""
    world_size = int(os.environ["WORLD_SIZE"])
    backend = backend or _default_backend(world_size)
    device = None
    if backend != "gloo":
        torch.accelerator.set_device_index(rank)
        device = torch.device(_accelerator(), rank)
    dist.init_process_group(
        backend,
        init_method=(folder / "meeting").as_uri(),
        rank=rank,
        world_size=world_size,
        device_id=device,
    )


def _default_backend(world_size: int) -> str:
    others = os.environ.get("DPKIT_DEVICES") in ("cpu", "sim")
    if others or torch.accelerator.device_count() < world_size:
        return "gloo"
    return dist.get_default_backend_for_device(_accelerator())


def _accelerator() -> str:
    """Return the kind of the devices for which there is NCCL or its like."""
    device = torch.accelerator.current_accelerator()
    return device.type if device else "cpu"


def _leave(path: Path, item: Any) -> None:
    """Save for the parent; it sees the file once it is whole."""
    part = path.with_name(f"part-of-{path.name}")
    torch.save(item, part)
    part.replace(path)
