"""The program of a rank: wait for a job, join the group, run, leave a value.

::

    parent                                  rank
      │ writes run-0/job
      │ "run-0" ───── standard input ─────▶ reads run-0/job
      │                                     joins the group at run-0/rendezvous
      │ looks for run-0/value-r ◀────────── leaves run-0/value-r, rests
      │ "run-1" ──────────────────────────▶ …
      ╳ the end of the input ─────────────▶ removes the folder, ends

When the parent is killed, the fork server ends the rank. Where that is a new
Python, Linux may kill it before it has removed the folder: then the folder
stays, and so does what the rank has started.
"""

import ctypes
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from dpkit.accelerator import real_devices
from dpkit.processes.children import ending_children, flush_output
from dpkit.processes.jobs import unpickled
from dpkit.processes.locations import Watch
from dpkit.processes.server import PR_SET_PDEATHSIG

INIT_BARRIER = "TORCH_DIST_INIT_BARRIER"
# Variables that a rank keeps, in place of those of its caller.
OWN = ("OMP_NUM_THREADS", "RANK", "LOCAL_RANK", "WORLD_SIZE", INIT_BARRIER)


def rank_device() -> torch.device:
    """Return the device of this rank: its own GPU, "sim:rank", or the CPU."""
    if dist.get_backend() == "gloo":
        return torch.device("cpu")
    if dist.get_backend() == "sim":
        return torch.empty(0, device="sim").device
    return torch.device("cuda", torch.cuda.current_device())


def run_rank() -> None:
    """Do the jobs of one rank; the program of the processes of Workers."""
    folder = Path(sys.argv[1])
    parent, backend = sys.argv[2:4]
    _end_with_parent(int(parent))
    # No rank may be through, and gone, before all have joined.
    os.environ[INIT_BARRIER] = "1"
    own = {name: os.environ[name] for name in OWN}
    watch = Watch(folder, int(own["RANK"]))
    jobs = _jobs(folder)
    while True:
        _do(folder / jobs.get(), own, backend or None, watch)
        watch.doing("resting")


def _do(
    folder: Path, own: dict[str, str], backend: str | None, watch: Watch
) -> None:
    """Do one job; after a failure, end this process."""
    rank = int(own["RANK"])
    try:
        watch.doing("importing")
        fn, args = unpickled(folder / "job", own)
        watch.doing("joining")
        join_group(folder, rank, backend)
        watch.doing("running")
        with ending_children():
            value = fn(*args)
        if dist.is_initialized():
            dist.destroy_process_group()
        watch.doing("saving")
        flush_output()
        _leave(folder / f"value-{rank}", value)
    except BaseException as error:  # sys.exit() in a rank is a failure too
        error = error.with_traceback(_own_part(error.__traceback__))
        text = "".join(traceback.format_exception(error)).rstrip()
        _leave(folder / f"error-{rank}", (time.monotonic(), rank, text))
        flush_output()
        os._exit(1)  # at once: no thread or handler may hold it back


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the calls that lead from this program to the function."""
    # _do, the function, what it called: the first one is left out
    while trace and trace.tb_next:
        if trace.tb_frame.f_globals is not globals():
            break
        trace = trace.tb_next
    return trace


def join_group(folder: Path, rank: int, backend: str | None) -> None:
    """Join the process group of all ranks, by a file that they share."""
    world_size = int(os.environ["WORLD_SIZE"])
    gpus = gpus_for_ranks()
    if backend is None:
        backend = "nccl" if len(gpus) >= world_size else "gloo"
    device = None
    if backend != "gloo":
        # Without the GPUs that torch cannot use, which may come first.
        device = gpus[rank] if rank < len(gpus) else torch.device("cuda", rank)
        torch.cuda.set_device(device)
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group(
        backend, rendezvous, rank=rank, world_size=world_size, device_id=device
    )


def gpus_for_ranks() -> list[torch.device]:
    """Return the GPUs, unless ``DPKIT_DEVICES`` asks for other devices."""
    others = os.environ.get("DPKIT_DEVICES") in ("cpu", "sim")
    return [] if others else real_devices()


def _leave(path: Path, item: Any) -> None:
    """Save a file that the parent sees once it is whole."""
    import cloudpickle  # type: ignore[import-untyped]

    part = path.with_name(f"part-of-{path.name}")
    torch.save(item, part, cloudpickle)
    part.replace(path)


def _jobs(folder: Path) -> SimpleQueue[str]:
    """Return the names of jobs as they come; end when the parent does."""
    jobs: SimpleQueue[str] = SimpleQueue()
    source = os.fdopen(os.dup(0))
    with open(os.devnull) as nothing:  # a job that reads its input gets none
        os.dup2(nothing.fileno(), 0)

    def read() -> None:
        for line in source:
            jobs.put(line.strip())
        # The parent is gone: nobody else removes the folder.
        shutil.rmtree(folder, ignore_errors=True)
        if os.getpgrp() == os.getpid():  # with all that it has started
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return jobs


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process with its parent, even if stopped.

    For the kernel the parent ends with the thread that started us. If that
    was not the main thread, ``parent`` is 0, and the kernel is not asked. A
    rank that was forked has asked before, and has 0 here, too.
    """
    if sys.platform == "linux" and parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)
