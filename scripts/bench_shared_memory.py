"""Allreduce between two processes of this host: shared memory, gloo, MPI.

``bench.py`` prints what :func:`bench_shared_memory` measures. The functions
that the ranks run lie here, in a module that they can import.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit.processes import SharedAllreduce, Workers

SIZES = [2**16, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28]  # bytes
REPETITIONS, MAX_CALLS, BYTES_IN_TURN = 7, 50, 2**24
SHARED, GLOO, MPI = "shared memory", "gloo", "MPI"
# Each line is what one size took, in seconds per call.
MPI_PROGRAM = """
import json, sys
from mpi4py import MPI
import bench_shared_memory as bench

world = MPI.COMM_WORLD
def allreduce(x):
    world.Allreduce(MPI.IN_PLACE, x.numpy())
for size in bench.SIZES:
    taken = bench.in_turns({"MPI": allreduce}, size, world.Barrier)
    if world.rank == 0:
        print(json.dumps(taken["MPI"]), flush=True)
"""


def in_turns(
    contestants: dict[str, Callable[[Tensor], object]],
    num_bytes: int,
    meet: Callable[[], object],
) -> dict[str, list[float]]:
    """Time the contestants in turns; return seconds per call.

    Args:
        contestants: Functions that add up a tensor over two ranks, in place.
        num_bytes: The size of the tensor.
        meet: A barrier, so that the ranks begin together.
    """
    count = max(1, min(MAX_CALLS, BYTES_IN_TURN // num_bytes))
    x = torch.ones(num_bytes // 4)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repetition in range(REPETITIONS + 1):
        for name, allreduce in contestants.items():
            x.fill_(1)
            meet()
            start = time.perf_counter()
            for _ in range(count):
                allreduce(x)
            passed = time.perf_counter() - start
            assert x[0] == x[-1] == 2.0**count, name
            if repetition > 0:  # the first is to warm up
                seconds[name].append(passed / count)
    return seconds


def measure() -> list[dict[str, list[float]]]:
    """Time shared memory and gloo at all sizes; run by both ranks."""
    contestants = {SHARED: SharedAllreduce(), GLOO: dist.all_reduce}
    return [in_turns(contestants, size, dist.barrier) for size in SIZES]


def measure_mpi() -> list[dict[str, list[float]]]:
    """Time MPI at all sizes; nothing where there is none."""
    mpiexec = shutil.which("mpiexec")
    if not mpiexec or not importlib.util.find_spec("mpi4py"):
        return [{} for _ in SIZES]
    program = [sys.executable, "-c", MPI_PROGRAM]
    out = subprocess.run(
        [mpiexec, "-n", "2", *program],
        cwd=__file__.rpartition("/")[0] or ".",
        capture_output=True,
        text=True,
        check=True,
    )
    return [{MPI: json.loads(line)} for line in out.stdout.splitlines()]


def bench_shared_memory() -> None:
    """Allreduce between two processes, from 64 KB to 256 MB."""
    with Workers(2, "gloo") as workers:
        seconds, _ = workers.run(measure, timeout_seconds=600)
    by_mpi = measure_mpi()
    print("\nallreduce between 2 processes, and how often as fast as gloo")
    if not by_mpi[0]:
        print("  no MPI is installed (mpiexec and mpi4py)")
    for size, own, other in zip(SIZES, seconds, by_mpi, strict=True):
        print(f"  {size // 1024:,} KB")
        for name, taken in {**own, **other}.items():
            low, middle, high = (
                1e6 * t for t in (min(taken), median(taken), max(taken))
            )
            ratio = median(own[GLOO]) / median(taken)
            print(
                f"    {name:<22} {low:10.1f} {middle:10.1f} {high:10.1f} µs"
                f"   {ratio:6.2f} ×"
            )
