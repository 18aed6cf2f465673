"""NCCL's allreduce, measured on servers, against the closed form.

The tables are those of ``book/_data/nccl_servers.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dpkit.least_squares import fit_two
from dpkit.plans import library_seconds
from dpkit.plans.library_costs import (
    BASE_SECONDS,
    PROTOCOLS,
    Route,
    passes_a_port,
)
from dpkit.sim.hardware import LINKS, Cluster, cluster

PASSES = 10  # by then each size has its way
FITTED = ("a100-nvlink", "v100-nvlink")


def servers() -> dict[str, Cluster]:
    """Return the server of each table, as presets know it."""
    port = LINKS["ethernet100"]
    # EFA: 100 or 400 Gbit/s for the eight devices of a server.
    slow = replace(port, bytes_per_second=port.bytes_per_second / 8)
    fast = replace(port, bytes_per_second=port.bytes_per_second / 2)
    pcie = replace(LINKS["pcie3"], peer_to_peer=True)
    v100s = cluster(16, "v100", "nvlink2", ranks_per_node=8)
    a100s = cluster(16, "a100", "nvlink3", ranks_per_node=8)
    return {
        "a100-nvlink": cluster(8, "a100", "nvlink3"),
        "v100-nvlink": cluster(8, "v100", "nvlink2"),
        "a100-nvlink-2": cluster(8, "a100", "nvlink3"),
        "v100-pcie": cluster(4, "v100-pcie", pcie),
        "v100-efa": replace(v100s, network=slow),
        "a100-efa": replace(a100s, network=fast),
    }


def measured(path: str | Path) -> dict[str, dict[int, float]]:
    """Return the tables of a file: name -> bytes -> seconds."""
    tables = json.loads(Path(path).read_text(encoding="utf-8"))["tables"]
    return {
        name: {int(n): 1e-6 * t for n, t in table["microseconds"].items()}
        for name, table in tables.items()
    }


def fit_ring(times: Mapping[float, float], p: int) -> tuple[float, float]:
    """Return the step's seconds and the bytes per second that fit best.

    ``times`` are bytes -> seconds of an allreduce among p devices of a
    server. The squares of relative errors are the least, each size in the
    way that is the faster one for it.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> a100s = cluster(8, "a100", "nvlink3")
        >>> times = {n: allreduce_seconds(a100s, n) for n in (1e3, 1e6, 1e9)}
        >>> step, rate = fit_ring(times, 8)
        >>> f"{1e6 * step:.2f} µs, {rate / 1e9:.1f} GB/s"
        '2.10 µs, 223.9 GB/s'
    """
    steps = 2 * (p - 1)
    step = (min(times.values()) - BASE_SECONDS) / steps
    rate = passes_a_port("allreduce", p, max(times)) / max(times.values())
    for _ in range(PASSES):
        us = []
        vs = []
        totals = []
        for n, seconds in times.items():
            moved = passes_a_port("allreduce", p, n)
            ring = Route(steps * step, moved, rate)
            way = min(PROTOCOLS.values(), key=ring.seconds)
            us.append(way.steps * steps / seconds)
            vs.append(way.num_bytes * moved / seconds)
            totals.append(1 - BASE_SECONDS / seconds)
        step, per_byte = fit_two(us, vs, totals=totals)
        rate = 1 / per_byte
    return step, rate


def allreduce_seconds(machine: Cluster, num_bytes: float) -> float:
    """Return the seconds of an allreduce among all devices, by closed form.

    Args:
        machine: The devices and their links.
        num_bytes: The size of the tensor on each device.
    """
    devices = range(machine.num_devices)
    return library_seconds("allreduce", devices, num_bytes, machine)


def library_errors(path: str | Path) -> dict[str, dict[int, float]]:
    """Return table -> bytes -> predicted over measured time, less one."""
    tables = measured(path)
    machines = servers()
    return {
        name: {
            n: allreduce_seconds(m, n) / seconds - 1
            for n, seconds in tables[name].items()
        }
        for name, m in machines.items()
    }
