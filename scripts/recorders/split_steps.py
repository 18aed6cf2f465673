"""Simulate steps that are split in three ways, over a grid of sizes.

Usage: python scripts/record.py split_steps

The steps are those of the chapter on splitting. The chapter compares them with
what ``formulas.splits.estimate`` says, which is computed where it is shown. It
takes about ten minutes on a CPU core.
"""

from collections.abc import Iterator
from itertools import product

from tqdm import tqdm

from dpbook.splitting.three_ways import (
    data_parallelism,
    layer_partitioning,
    network_partitioning,
    traced,
)
from recorders.provenance import provenance, store

WAYS = {
    "data": data_parallelism,
    "network": network_partitioning,
    "layer": layer_partitioning,
}
LINKS = ("nvlink2", "pcie3-p2p", "ethernet100", "ethernet25", "pcie3")
DEVICES = (2, 4, 8)
ROWS = (512, 4096, 65_536)
WIDTHS = (256, 512, 1024, 2048, 4096, 8192)
DEPTH = 8
DIGITS = 5  # that are stored of seconds


def points() -> Iterator[tuple[str, int, int, int]]:
    """Yield link, devices, rows and width."""
    for link, k, rows, width in product(LINKS, DEVICES, ROWS, WIDTHS):
        if rows > 512 or k == 4:
            yield link, k, rows, width


def simulated_seconds(
    way: str, link: str, k: int, rows: int, width: int
) -> float:
    """Return the seconds of a step on simulated V100s with room for it.

    Args:
        way: A name in ``WAYS``.
        link: A preset.
        k: The number of devices.
        rows: The examples of the batch, over all devices.
        width: The values that go into each layer and come out of it.
    """
    room = {"accelerator": "v100", "link": link, "memory_bytes": 10**15}
    return traced(
        WAYS[way], k, rows=rows, width=width, depth=DEPTH, **room
    ).makespan


def main() -> None:
    """Simulate all, and write the sizes and the seconds."""
    rows = []
    for point in tqdm(list(points()), "split steps"):
        for way in WAYS:
            seconds = simulated_seconds(way, *point)
            rows.append([way, *point, float(f"{seconds:.{DIGITS}g}")])
    what = (
        "way, link, devices, rows of the batch, width; then the simulated "
        f"seconds of a step of {DEPTH} dense layers in float32 on V100s"
    )
    command = "python scripts/record.py split_steps"
    facts = provenance(command) | {"clock": "simulated", "accelerator": "v100"}
    store("split_steps", {"provenance": facts, "what": what, "rows": rows})
