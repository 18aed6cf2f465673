"""Checks of the exercises on splitting layers, networks and batches."""

from collections.abc import Sequence
from itertools import chain, product
from math import ceil
from typing import NamedTuple

from dpbook.exercises.verdict import (
    Answer,
    require,
    require_at_most,
    require_reference,
    require_same,
)
from dpbook.formulas.splits import WAYS, estimate
from dpkit.sim.hardware import cluster

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


COLUMNS = "columns"
ROWS = "rows"
Chain = tuple[list[int], list[str]]


def check_columns_or_rows(answer: Answer, more: Sequence[Chain] = ()) -> None:
    """Layers that widen, that narrow, and norms where shards must end."""
    relu, norm = "relu", "norm"
    chains: tuple[Chain, ...] = (
        ([8, 32, 8], [relu]),
        ([8, 2, 8], [relu]),
        ([32, 8], []),
        ([8, 32, 8], [norm]),
        ([8, 32, 16, 8], [relu, relu]),
        ([8, 32, 8, 32, 8], [relu, norm, relu]),
        ([64, 16, 4, 16, 64, 10], [relu, norm, relu, relu]),
        *more,
    )
    for widths, between in chains:
        case = f"widths {widths}, between them {between}"
        found = answer(list(widths), list(between))
        count = len(widths) - 1
        known = isinstance(found, list) and {*found} <= {COLUMNS, ROWS}
        why = f'{case}: it returned {found!r}, not {count} of "columns" and '
        require(known and len(found) == count, f'{why}"rows"')
        messages = _messages(found, widths, between)
        sent = sum(number for _, number in messages)
        # A layer costs its own width, or that of its input more or less, so
        # each may be chosen alone; trying all says the same.
        least = min(
            sum(number for _, number in _messages(list(cuts), widths, between))
            for cuts in product((COLUMNS, ROWS), repeat=count)
        )
        listed = ", ".join(f"{number} {where}" for where, number in messages)
        why = f"{case}: {found} sends {sent} ({listed}), where {least} do"
        require(sent == least, why)


def _messages(
    cuts: list[str], widths: list[int], between: list[str]
) -> list[tuple[str, int]]:
    """Return what is sent behind each layer: in words, and how much."""
    found = []
    for i, cut in enumerate(cuts):
        # From partial sums to shards, and from shards to the whole, is one
        # collective each, which sends the width of the layer's output.
        is_last = i + 1 == len(cuts)
        shards_will_do = not is_last and (
            between[i] == "relu" and cuts[i + 1] == ROWS
        )
        halves = (cut == ROWS) + (not shards_will_do)
        if halves:
            name = {
                (ROWS, 2): "by an allreduce",
                (ROWS, 1): "by a reduce-scatter",
                (COLUMNS, 1): "by an allgather",
            }[cut, halves]
            found.append((f"{name} behind layer {i}", halves * widths[i + 1]))
    return found


class Design(NamedTuple):
    """A network of 8 layers on a link, and its targets for one device."""

    link: str
    rows: int
    width: int
    most_ms: float  #: of a step
    most_mb: float  #: of parameters and activations


DESIGNS = (
    Design("nvlink2", rows=8192, width=2048, most_ms=20, most_mb=250),
    Design("nvlink2", rows=1024, width=8192, most_ms=70, most_mb=800),
    Design("pcie3", rows=4096, width=4096, most_ms=90, most_mb=200),
)
NUM_DEVICES = (2, 4, 8)


def check_three_designs(
    answer: Answer, designs: Sequence[Design] = DESIGNS
) -> None:
    """A way and the fewest devices for each of three networks."""
    found = answer()
    why = f"it returned {found!r}, not three pairs"
    require(isinstance(found, list) and len(found) == len(designs), why)
    for (way, k), design in zip(found, designs):
        network = f"{design.rows} rows of {design.width} over {design.link}"
        case = f"{network}, {way} on {k} devices"
        require(way in WAYS, f"{case}: the ways are {', '.join(WAYS)}")
        require(k in NUM_DEVICES, f"{case}: take 2, 4 or 8 devices")
        ms, mb = ms_and_mb(way, k, design)
        require_at_most(
            ms, most=design.most_ms, unit="ms", start=f"{case}: a step takes"
        )
        require_at_most(
            mb, most=design.most_mb, unit="MB", start=f"{case}: a device holds"
        )
        require(k == fewest(design), f"{case}: fewer devices are enough")


def ms_and_mb(way: str, k: int, design: Design) -> tuple[float, float]:
    """Return the ms of a step, and the MB that each of k devices holds."""
    step = estimate(
        way,
        rows=design.rows,
        width=design.width,
        depth=8,
        cluster=cluster(k, "v100", design.link),
    )
    held = step.parameter_bytes + step.activation_bytes
    return 1e3 * step.seconds, held / 1e6


def fewest(design: Design) -> int:
    """Return the least number of devices that meets both targets."""

    def meets(way: str, k: int) -> bool:
        ms, mb = ms_and_mb(way, k, design)
        return ms <= design.most_ms and mb <= design.most_mb

    return min(k for k in NUM_DEVICES for way in WAYS if meets(way, k))


def check_least_devices(answer: Answer) -> None:
    """Where it fits, where it does not, and where it just does."""

    def least(way: str, num_parameters: int, memory_bytes: int) -> int | None:
        needed = ceil(16 * num_parameters / memory_bytes)
        return None if way == "data" and needed > 1 else needed

    sizes = (10**6, 10**9, 10**9 + 1, 70 * 10**9)
    cases = product(("data", "network", "layer"), sizes, [16 * 10**9])
    case_format = "{0}, {1:,} parameters, 16 GB"
    require_reference(answer, least, cases, case_format)
