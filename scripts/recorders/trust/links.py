"""Cards on PCI Express: copies and allreduces, predicted and measured.

A Tesla card writes to the memory of another; a GeForce card copies by way of
the host. The links ``pcie3-p2p`` and ``pcie3`` stand for the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dpbook.limits.comparisons import Comparison
from dpkit.plans import FREE_HOST, replay_plan, ring
from dpkit.sim.clock import Clock
from dpkit.sim.hardware import Cluster, cluster, copy_seconds

COPIED = 10**8  # bytes of a copy that is large
FITTED = (8, 2**26, 2**27)  # bytes that pcie3-p2p was fitted to


def copy_rows(records: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """Compare copies between two cards, one way and both ways at once.

    ``records`` are the ``copies`` of ``book/_data/pcie.json``.
    """
    pair = _cards(2, "pcie3")
    return [
        Comparison(
            "copy by way of the host",
            _short(record["what"]),
            f"{record['pair']}, {ways} at once",
            "GB/s",
            1e-9 * copied_per_second(pair, ways),
            1e-9 * record[f"{name}_bytes_per_second"],
            "unseen",
            "copies",
        )
        for record in records
        for ways, name in ((1, "one_way"), (2, "both_ways"))
    ]


def copied_per_second(pair: Cluster, ways: int) -> float:
    """Return the bytes per second between two devices, ways added up."""
    clock = Clock(pair)
    seconds = copy_seconds(pair.link, COPIED)
    for source in range(ways):
        clock.current[:] = [clock.new_stream(0), clock.new_stream(1)]
        clock.copy(source, 1 - source, seconds=seconds, num_bytes=COPIED)
    for device in range(2):
        clock.wait(device, cost=0.0)
    return ways * COPIED / clock.now()


def allreduce_rows(
    record: Mapping[str, Any], link: str, fitted: Sequence[int] = ()
) -> list[Comparison]:
    """Compare rings, message by message, with the allreduces of a library.

    ``record`` has ``what``, ``num_ranks`` and ``microseconds`` by bytes.
    """
    p = record["num_ranks"]
    cards = _cards(p, link)
    plan = ring(p)
    return [
        Comparison(
            f"allreduce over {link}",
            _short(record["what"]),
            f"{num_bytes:,} bytes",
            "µs",
            1e6 * replay_plan(plan, num_bytes // 4, cards).makespan,
            measured,
            "fitted" if num_bytes in fitted else "unseen",
            "collectives by messages",
        )
        for num_bytes, measured in (
            (int(n), us) for n, us in record["microseconds"].items()
        )
    ]


def _short(what: str) -> str:
    return what.split(",")[0]


def _cards(count: int, link: str) -> Cluster:
    return cluster(count, "v100-pcie", link, FREE_HOST, hosts="per_device")
