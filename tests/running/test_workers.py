"""The number of workers follows the machine."""

import os
from types import SimpleNamespace

import psutil
import pytest

from tests.running import workers

pytest_plugins = ["pytester"]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Pretend a machine, whose control group is two folders deep."""
    own = tmp_path / "pod" / "job"
    own.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("3:cpuset:/\n0::/pod/job\n")
    monkeypatch.setattr(workers, "GROUPS", tmp_path)
    monkeypatch.setattr(workers, "OWN_GROUP", tmp_path / "cgroup")

    def pretend(cores, gigabytes):
        available = SimpleNamespace(available=int(gigabytes * 1e9))
        monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _: range(cores), raising=False
        )
        return own

    return pretend


@pytest.mark.parametrize(
    ("cores", "gigabytes", "expected"),
    [
        (1, 20, 2),
        (2, 20, 3),
        (16, 100, 17),
        (8, 5.1, 2),  # a laptop of 8 GB, when a browser is open
        (8, 1.0, 1),
    ],
)
def test_cores_and_memory_limit_the_workers(
    machine, cores, gigabytes, expected
):
    machine(cores, gigabytes)
    assert workers.count_workers() == expected


def test_a_container_has_fewer_cores(machine):
    own = machine(16, 100)
    (own / "cpu.max").write_text("max 100000\n")
    assert workers.count_workers() == 17
    (own.parent / "cpu.max").write_text("350000 100000\n")
    assert workers.count_workers() == 4
    (own / "cpu.max").write_text("50000 100000\n")
    assert workers.count_workers() == 2


def test_a_container_has_less_memory(machine):
    own = machine(16, 100)
    for group, limit, used in ((own, 9, 4), (own.parent, 50, 1)):
        (group / "memory.max").write_text(f"{limit * 10**9}\n")
        (group / "memory.current").write_text(f"{(used + 1) * 10**9}\n")
        stat = f"anon {10**9}\ninactive_file {10**9}\nactive_file 7\n"
        (group / "memory.stat").write_text(stat)
    assert workers.available_memory() == 5e9
    assert workers.count_workers() == 2


def test_without_control_groups(machine, tmp_path):
    machine(2, 20)
    (tmp_path / "cgroup").unlink()
    assert workers.count_workers() == 3


def test_pytest_asks_for_the_number(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr(workers, "count_workers", lambda: 77)
    config = pytester.parseconfig("-ptests.running.workers")
    ask = config.hook.pytest_xdist_auto_num_workers
    assert ask(config=config) == 77
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    assert ask(config=config) == 3
