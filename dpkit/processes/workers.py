"""The parent of the ranks: start them, give them jobs, take their values."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from dpkit.arguments import check_function
from dpkit.processes.failures import failure, lateness
from dpkit.processes.jobs import pickled
from dpkit.processes.run_clock import RunClock, Uses, read_uses
from dpkit.processes.starting import (
    Process,
    ctrl_c_deferred,
    kill,
    server_of_ranks,
    start,
    tell,
)
from dpkit.sim.streams import thread
from dpkit.units import check_count, check_known, check_seconds

PARENT_LOOK_SECONDS = 0.005  # how often the parent looks
SETTLE_SECONDS = 0.1  # how long it waits for whose failure was first


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str | None = None,
    timeout_seconds: float = 60.0,
) -> list[Any]:
    """Run ``fn(*args)`` in ``world_size`` processes; return their values.

    The values are in order of rank, with tensors on the CPU. Each process
    joins the default process group before it calls ``fn``:
    ``torch.distributed.get_rank()`` tells the ranks apart, and
    :func:`dpkit.processes.rank_device` where their tensors belong. What they
    print does not show in a notebook: return values, and print those. A rank
    computes with one thread, unless ``OMP_NUM_THREADS`` or the function says
    otherwise. No process and no file is left behind; elsewhere than on Linux,
    some may be if the caller itself is killed.

    On Linux the processes are forked from one that has imported torch, which
    the first call starts in some seconds, and which ends with the caller. Each
    is a new Python, which takes seconds, on other systems, and where a
    variable that torch reads when it is imported, such as
    ``TORCH_DISTRIBUTED_DEBUG``, is not as it was when dpkit was imported.
    :class:`dpkit.processes.Workers` stay for several functions. To run it on
    simulated GPUs, in simulated time and without processes, there is
    :func:`dpkit.sim.launch`.

    Args:
        fn: Each rank imports it; a function of a notebook cell or of a script
            is copied to the ranks, with the variables that it uses.
        world_size: The number of processes.
        *args: Every rank gets a copy; tensors on the CPU.
        backend: "gloo" (on the CPU) or "nccl" (a GPU for each rank). None
            means NCCL where there are ``world_size`` GPUs and
            ``DPKIT_DEVICES`` does not ask for other devices, else gloo.
        timeout_seconds: For all of it, the start of the processes included.
            Where other programs use the processors, on Linux, a second counts
            as what the ranks got of the time that they were ready to run in:
            as a third, where they had to wait for the rest.

    Raises:
        TypeError: ``fn`` is no function; or an argument cannot be copied,
            such as an open file.
        ValueError: the time is no positive number of seconds.
        RuntimeError: a rank raised an exception, whose traceback the message
            holds, or ended without a result; or a rank of a simulated machine
            calls this.
        TimeoutError: some ranks had not returned in time; the message says
            what each of them was doing.

    Example:
        >>> import torch.distributed as dist
        >>> launch(dist.get_rank, 3)
        [0, 1, 2]
    """
    with Workers(world_size, backend) as workers:
        return workers.run(fn, *args, timeout_seconds=timeout_seconds)


class Workers:
    """Processes that stay, and run one function after another.

    They start at the first run, and at the run after a failure, in that run's
    time. Each run has its own process group, and the working directory, path
    and environment variables of the caller. What earlier functions left in
    their modules stays: seeds, the default dtype, caches, and the modules
    themselves, even if their files change. Runs that several threads call
    take turns. Errors are those of :func:`dpkit.launch`.

    Args:
        world_size: The number of processes.
        backend: "gloo", "nccl" or None, as for :func:`dpkit.launch`.

    Example:
        >>> import torch.distributed as dist
        >>> with Workers(2) as workers:
        ...     print(workers.run(dist.get_rank))
        ...     print(workers.run(max, 3, 5))
        [0, 1]
        [5, 5]
    """

    def __init__(self, world_size: int, backend: str | None = None) -> None:
        check_count("world_size", world_size)
        if backend is not None:
            check_known("backend", backend, dist.Backend.backend_list)
        self._world_size = world_size
        self._backend = backend
        self._processes: list[Process] = []
        self._folder: TemporaryDirectory[str] | None = None
        self._num_runs = 0
        self._turn = threading.Lock()

    def run(
        self, fn: Callable[..., Any], *args: Any, timeout_seconds: float = 60.0
    ) -> list[Any]:
        """Run ``fn(*args)`` on every rank; return their values.

        Args:
            fn: As for :func:`dpkit.launch`.
            *args: Every rank gets a copy; tensors on the CPU.
            timeout_seconds: For this run, with the start of the processes if
                there are none.
        """
        check_function("fn", fn)
        check_seconds("timeout_seconds", timeout_seconds)
        self._check_caller()
        job = pickled(fn, args)
        with self._turn:
            try:
                return self._run(job, timeout_seconds)
            except BaseException:  # Ctrl-C among them
                self._end()
                raise

    def _check_caller(self) -> None:
        """Refuse a rank of a simulated machine: what it starts is on none."""
        rank = thread.rank
        if rank is not None:
            raise RuntimeError(
                "a rank of a simulated machine starts no real processes, "
                "which would have no simulated devices (caller: rank "
                f"{rank}, world_size: {self._world_size}); call dpkit.launch "
                "outside of these ranks"
            )

    def close(self) -> None:
        """End the processes; a later run would start new ones."""
        with self._turn:
            self._end()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, job: bytes, timeout_seconds: float) -> list[Any]:
        clock = RunClock(self._uses)
        self._wait_for_server(clock, timeout_seconds)
        folder = self._ready() / f"run-{self._num_runs}"
        self._num_runs += 1
        folder.mkdir()
        (folder / "job").write_bytes(job)
        for process in self._processes:
            tell(process, folder.name)
        late = _wait(self._processes, folder, clock, timeout_seconds)
        if late:
            raise TimeoutError(
                lateness(self._processes, folder, late, timeout_seconds)
            )
        values = [
            torch.load(folder / f"value-{r}", "cpu", weights_only=False)
            for r in range(self._world_size)
        ]
        shutil.rmtree(folder)
        return values

    def _uses(self) -> Uses:
        """Return what all that runs for us has had of the processors."""
        server = server_of_ranks()
        pids = [process.pid for process in self._processes]
        return read_uses([*pids, server.pid] if server else pids)

    def _wait_for_server(
        self, clock: RunClock, timeout_seconds: float
    ) -> None:
        """Wait until ranks can be forked, where they are.

        This is not within _ready(): Ctrl-C is to end it.
        """
        server = server_of_ranks()
        while server and not server.is_ready():
            if clock.seconds() > timeout_seconds:
                raise TimeoutError(
                    "the process from which ranks are forked had not started "
                    f"in time (timeout_seconds: {timeout_seconds:g})"
                )
            time.sleep(PARENT_LOOK_SECONDS)

    def _ready(self) -> Path:
        """Start the processes where there are none; return their folder."""
        if any(process.poll() is not None for process in self._processes):
            self._end()  # some ended while they had nothing to do
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="dpkit-")
        folder = Path(self._folder.name)
        with ctrl_c_deferred():
            for rank in range(len(self._processes), self._world_size):
                process = start(folder, rank, self._world_size, self._backend)
                self._processes.append(process)
        return folder

    def _end(self) -> None:
        with ctrl_c_deferred():  # a second Ctrl-C waits until all are ended
            for process in self._processes:
                kill(process)
            for process in self._processes:
                assert process.stdin
                process.stdin.close()
                process.wait()
            self._processes = []
            if self._folder:
                self._folder.cleanup()
            self._folder = None


def _wait(
    processes: list[Process],
    folder: Path,
    clock: RunClock,
    timeout_seconds: float,
) -> list[int]:
    """Wait for the values of all ranks; return the ranks that are late."""
    running = list(range(len(processes)))
    while running and clock.seconds() <= timeout_seconds:
        time.sleep(PARENT_LOOK_SECONDS)
        ended = [r for r in running if processes[r].poll() is not None]
        left = {path.name for path in folder.iterdir()}
        running = [r for r in running if f"value-{r}" not in left]
        raised = any(f"error-{r}" in left for r in running)
        if raised or set(ended) & set(running):
            time.sleep(SETTLE_SECONDS)
            raise RuntimeError(failure(processes, folder))
    return running
