"""Pipelines whose speed was published: formula, replay and measurement.

torchgpipe trained AmoebaNet-D on Tesla P40s: n stages, each batch in m
micro-batches. The seconds of its layers come from simulated devices; batches,
balances and measurements from what was published.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpkit.lab.network_partitioning.torchgpipe import (
    PUBLISHED,
    Assumptions,
    Run,
    step_seconds,
)
from dpkit.network_partition import LayerCost
from dpkit.theory.tables import Table

# From the formula to the replay, one thing after another.
LADDER = {
    "layers' seconds, equal stages": Assumptions(None, False, True),
    "published balance": Assumptions(None, False),
    "recomputation": Assumptions(None),
    "hops": PUBLISHED,
}


@dataclass(frozen=True)
class Row:
    """A run, and its speed-ups over the first run of the table."""

    run: Run
    formula: float
    replayed: float
    measured: float
    samples_per_second: float  # what the replay says of the speed itself

    @property
    def miss(self) -> float:
        """(replayed − measured) / measured."""
        return self.replayed / self.measured - 1


def layer_costs(columns: Mapping[str, Sequence[Any]]) -> list[LayerCost]:
    """Return the costs of layers that a record holds as columns."""
    rows = zip(*(columns[name] for name in LayerCost._fields), strict=True)
    return [LayerCost(*row) for row in rows]


def amoebanet_table(
    published: Mapping[str, Any],
    simulated: Mapping[str, Any],
    assumptions: Assumptions = PUBLISHED,
) -> list[Row]:
    """Return the speed-ups of AmoebaNet-D: by formula, replayed, measured.

    ``published`` is book/_data/torchgpipe_amoebanet.json, and ``simulated``
    amoebanet_p40.json: the seconds of each layer on simulated P40s, for each
    size of micro-batch.
    """
    costs = {
        int(size): layer_costs(columns)
        for size, columns in simulated["micro_batches"].items()
    }
    runs = [Run(**run) for run in published["runs"]]
    speeds = [
        run.batch / step_seconds(run, costs[run.micro_batch], assumptions)
        for run in runs
    ]
    first = runs[0]
    return [
        Row(
            run,
            run.formula / first.formula,
            speed / speeds[0],
            run.samples_per_second / first.samples_per_second,
            speed,
        )
        for run, speed in zip(runs, speeds)
    ]


def show_table(rows: Iterable[Row]) -> Table:
    """Return a table of the speed-ups and how far off the replay is."""
    speed_ups = "formula:.2f | replayed:.2f | measured:.2f"
    table = Table(f"n | m | batch | balance | {speed_ups} | miss:+.0%")
    for row in rows:
        run = row.run
        balance = "-".join(map(str, run.balance))
        times = row.formula, row.replayed, row.measured, row.miss
        sizes = run.num_stages, run.num_micro_batches, run.batch
        table.add(*sizes, balance, *times)
    return table


def show_ladder(
    published: Mapping[str, Any], simulated: Mapping[str, Any]
) -> Table:
    """Return a table of how far off each step from formula to replay is.

    A column is a run, n and m, without the first, to which all are compared;
    the last column is the mean of the absolute values.
    """
    steps = {
        name: amoebanet_table(published, simulated, assumptions)
        for name, assumptions in LADDER.items()
    }
    rows = steps["hops"]
    misses = {"formula": [row.formula / row.measured - 1 for row in rows]}
    misses |= {name: [r.miss for r in rows] for name, rows in steps.items()}
    names = [f"{r.run.num_stages}, {r.run.num_micro_batches}" for r in rows]
    heads = "".join(f" | {name}:+.0%" for name in names[1:])
    table = Table(f"n, m{heads} | mean:.0%")
    for name, (_, *values) in misses.items():
        table.add(name, *values, sum(map(abs, values)) / len(values))
    return table
