"""Checks of the exercises on splitting layers, networks and batches."""

from itertools import chain, product
from math import ceil

from dpbook.exercises.verdict import (
    Answer,
    require,
    require_at_most,
    require_reference,
    require_same,
)
from dpbook.formulas.splits import WAYS, estimate
from dpkit.theory.hardware.clusters import cluster

_Row = list[float]
_Rows = list[_Row]


def check_split_layer(answer: Answer) -> None:
    """A layer split by its inputs, on one rank and on several."""

    def whole(
        x_shards: list[_Row], W_shards: list[_Rows], bias: _Row
    ) -> list[float]:
        x = [*chain(*x_shards)]
        W = [*chain(*W_shards)]
        sums = [sum(a * b for a, b in zip(x, column)) for column in zip(*W)]
        return [max(0.0, s + b) for s, b in zip(sums, bias)]

    W = [[1.0, 2.0], [3.0, -4.0], [-5.0, 1.0]]
    x = [1.0, 2.0, -3.0]
    bias = [1.0, 5.0]
    for cuts in ([3], [2, 3], [1, 2, 3]):
        spans = list(zip([0, *cuts], cuts))
        shards = [x[a:b] for a, b in spans], [W[a:b] for a, b in spans]
        found = answer(*shards, bias)
        expected = whole(*shards, bias)
        require_same(found, expected, f"{len(cuts)} ranks")


# (link, rows, width), then how long a step of 8 layers may take, in ms, and
# how many MB of parameters and activations a device may hold.
DESIGNS = (
    (("nvlink2", 8192, 2048), 20, 250),
    (("nvlink2", 1024, 8192), 70, 800),
    (("pcie3", 4096, 4096), 90, 200),
)


def check_three_designs(answer: Answer) -> None:
    """A way and a number of devices for each of three networks."""
    found = answer()
    words = f"it returned {found!r}, not three pairs"
    require(isinstance(found, list) and len(found) == len(DESIGNS), words)
    for (way, k), design in zip(found, DESIGNS):
        (link, rows, width), most_ms, most_mb = design
        case = f"{rows} rows of {width} over {link}, {way} on {k} devices"
        require(way in WAYS, f"{case}: the ways are {', '.join(WAYS)}")
        require(k in (2, 4, 8), f"{case}: take 2, 4 or 8 devices")
        step = estimate(
            way,
            rows=rows,
            width=width,
            depth=8,
            cluster=cluster(k, "v100", link),
        )
        ms = 1e3 * step.seconds
        require_at_most(ms, most_ms, "ms", f"{case}: a step takes")
        mb = (step.parameter_bytes + step.activation_bytes) / 1e6
        require_at_most(mb, most_mb, "MB", f"{case}: a device holds")


def check_least_devices(answer: Answer) -> None:
    """Where it fits, where it does not, and where it just does."""

    def least(way: str, num_parameters: int, memory_bytes: int) -> int | None:
        needed = ceil(16 * num_parameters / memory_bytes)
        return None if way == "data" and needed > 1 else needed

    sizes = (10**6, 10**9, 10**9 + 1, 70 * 10**9)
    cases = product(("data", "network", "layer"), sizes, [16 * 10**9])
    words = "{0}, {1:,} parameters, 16 GB"
    require_reference(answer, least, cases, words)
