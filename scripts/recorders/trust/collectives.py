"""NCCL's allreduces in nodes and between them, as rows.

Each is predicted in two ways: by the closed form of a library, and, on
H200s, by two rates that were fitted to a half of one table.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpbook.limits.comparisons import Comparison
from dpkit.plans.alpha_beta import fit
from dpkit.plans.bounds import seconds_at
from dpkit.plans.costs import Chain, ring_chain
from dpkit.sim.hardware import cluster
from recorders.trust.library_fit import (
    FITTED,
    allreduce_seconds,
    measured,
    servers,
)

INSIDE = "collectives in a node"
ACROSS = "collectives between nodes"
BY_MESSAGES = "collectives by messages"
HARDWARE = {
    "a100-nvlink": "8 A100, NVLink",
    "a100-nvlink-2": "8 A100, NVLink, another",
    "v100-nvlink": "8 V100, NVLink",
    "v100-pcie": "4 V100, PCI Express",
    "v100-efa": "2 nodes of 8 V100",
    "a100-efa": "2 nodes of 8 A100",
}


def server_rows(path: str | Path) -> Iterator[Comparison]:
    """Compare the closed form with the tables of nccl_servers.json."""
    tables = measured(path)
    for name, machine in servers().items():
        work = ACROSS if name.endswith("efa") else INSIDE
        kind = "fitted" if name in FITTED else "unseen"
        for num_bytes, seconds in tables[name].items():
            found = allreduce_seconds(machine, num_bytes)
            times = found, seconds
            yield _row("closed form", HARDWARE[name], num_bytes, times, kind,
                       work)  # fmt: skip


def h200_rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the closed form, and two rates, with nccl_h200.json.

    The link's constants were fitted to the table "another", and the two rates
    to every other size of the table "fitted".
    """
    tables = {
        "8 H200": _h200_seconds(record, "fitted"),
        "8 H200, another": _h200_seconds(record, "another"),
    }
    machine = cluster(8, "h200", "nvlink4")
    for name, times in tables.items():
        kind = "fitted" if "another" in name else "unseen"
        for n, seconds in times.items():
            pair = allreduce_seconds(machine, n), seconds
            yield _row("closed form", name, n, pair, kind, INSIDE)
    some = dict([*tables["8 H200"].items()][::2])
    rates = fit(some, _ring)
    for name, times in tables.items():
        for n, seconds in times.items():
            pair = _ring(n).seconds(rates), seconds
            fitted = name == "8 H200" and n in some
            kind = "fitted" if fitted else "unseen"
            yield _row("two rates", name, n, pair, kind, BY_MESSAGES)


def _ring(num_bytes: float) -> Chain:
    return ring_chain(8, num_bytes)


def _h200_seconds(record: Mapping[str, Any], table: str) -> dict[float, float]:
    rates = record["tables"][table]["bus_gigabytes_per_second"]
    return {
        int(n): seconds_at(
            "allreduce", 8, num_bytes=int(n), bytes_per_second=1e9 * rate
        )
        for n, rate in rates.items()
    }


def _row(
    form: str,
    hardware: str,
    num_bytes: float,
    seconds: tuple[float, float],
    kind: str,
    work: str,
) -> Comparison:
    predicted, found = seconds
    return Comparison(
        f"allreduce, {form}",
        hardware,
        f"{num_bytes:,} bytes",
        "µs",
        1e6 * predicted,
        1e6 * found,
        kind,
        work,
    )
