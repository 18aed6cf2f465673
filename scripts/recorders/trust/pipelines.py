"""Two published pipelines: their speeds, and their speed-ups.

``recorders.published`` simulates them, and writes two records.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbook.limits.comparisons import Comparison
from dpbook.network_partitioning.torchgpipe import Row, amoebanet_table

SPEEDS = "pipelines"
SPEEDUPS = "speed-ups of pipelines"
PRESET = "k80"  # the slowest: the tutorial does not name its GPUs


def tutorial_rows(
    published: Mapping[str, Any], simulated: Mapping[str, Any]
) -> Iterator[Comparison]:
    """Compare the seconds of PyTorch's tutorial, and those over one GPU's."""
    measured = published["seconds"]
    found = simulated["seconds"][PRESET]
    who = "ResNet-50 in two halves", "not named; K80"
    for name, seconds in measured.items():
        way = _way(name)
        values = "s", found[name], seconds, "unseen", SPEEDS
        yield Comparison(*who, way, *values)
        if name != "one device":
            one = found["one device"], measured["one device"]
            ratios = found[name] / one[0], seconds / one[1]
            values = "times one GPU's", *ratios, "unseen", SPEEDUPS
            yield Comparison(*who, way, *values)


def _way(name: str) -> str:
    if name.isdigit():
        return f"2 GPUs, pieces of {name}"
    return {"no": "2 GPUs, not split", "one device": "1 GPU"}[name]


def torchgpipe_rows(
    published: Mapping[str, Any], simulated: Mapping[str, Any]
) -> Iterator[Comparison]:
    """Compare torchgpipe's samples per second, and speed-ups over the first.

    The first has a speed-up of 1 by its definition.
    """
    who = "AmoebaNet-D in stages", "P40"
    for number, row in enumerate(amoebanet_table(published, simulated)):
        speed = row.samples_per_second
        measured = row.run.samples_per_second
        values = "samples/s", speed, measured, "unseen", SPEEDS
        yield Comparison(*who, _run(row), *values)
        if number:
            ratios = row.replayed, row.measured
            values = "times the first", *ratios, "unseen", SPEEDUPS
            yield Comparison(*who, _run(row), *values)


def _run(row: Row) -> str:
    n = row.run.num_stages
    m = row.run.num_micro_batches
    return f"{n} GPUs, {m} micro-batches"
