"""How many workers run the tests: one more than cores, if memory is enough.

A worker often waits: for processes that start, for ranks that end, for a limit
of time. On two cores, three workers take two thirds of the time of two.

``python -m tests.running.workers`` prints it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# The worker itself takes up to 1.5 GB. A chapter runs in a process of its own,
# for which the worker waits; it takes up to 1.9 GB, but most take 1 GB.
BYTES_A_WORKER = 2_500_000_000
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def groups() -> Iterator[Path]:
    """Yield the folders of the control groups that this process is in.

    A container limits its processes by them, and psutil does not read it.
    Only the second version of control groups is known here.
    """
    lines = OWN_GROUP.read_text().split() if OWN_GROUP.exists() else []
    for line in lines:
        if line.startswith("0::"):
            own = GROUPS / line.removeprefix("0::/")
            yield from (
                own,
                *own.parents[: len(own.relative_to(GROUPS).parts)],
            )


def limits(name: str) -> Iterator[tuple[Path, list[int]]]:
    """Yield the groups that have a limit of this name, with its numbers."""
    for group in groups():
        file = group / name
        words = file.read_text().split() if file.exists() else ["max"]
        if words[0] != "max":
            yield group, [int(word) for word in words]


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    for _, (quota, period) in limits("cpu.max"):
        cores = min(cores, max(1, quota // period))
    return cores


def available_memory() -> int:
    """Return how many bytes of memory are there for the tests."""
    available = psutil.virtual_memory().available
    for group, (limit,) in limits("memory.max"):
        used = int((group / "memory.current").read_text())
        available = min(available, limit - used + unused_pages(group))
    return available


def unused_pages(group: Path) -> int:
    """Return the bytes of files that a group keeps, but has not used lately.

    The system counts them as used, and takes them back when it needs memory.
    """
    lines = (group / "memory.stat").read_text().splitlines()
    return int(dict(map(str.split, lines))["inactive_file"])


def count_workers() -> int:
    """Return how many workers fit this machine."""
    wanted = count_cores() + 1
    return max(1, min(wanted, available_memory() // BYTES_A_WORKER))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Choose the number for ``-n auto``, unless the environment has one."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # pytest-xdist reads it
    return count_workers()


def pytest_report_header() -> str:
    """Print what the number of workers follows from."""
    gigabytes = available_memory() / 1e9
    return f"cores: {count_cores()}, memory available: {gigabytes:.1f} GB"


if __name__ == "__main__":
    print(count_workers())
