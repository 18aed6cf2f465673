"""One step by two clocks: by the planner, and on simulated devices.

The step is that of 6.7 billion parameters in ``book/_data/seven_billion.json``
on 8 H100s, with ``fully_shard`` and recomputation.
"""

from collections.abc import Mapping
from typing import Any

from dpbook.explore.planner import nodes_of
from dpbook.planner.case import Case, StepSeconds
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import Planned
from dpbook.sharding.seven_billion import HEAD
from dpkit.tables import Table, table


def planned_step(
    record: Mapping[str, Any], sequences: int, sustained: float | None = None
) -> StepSeconds:
    """Return the planner's seconds of a step of the record.

    Each of 8 devices has so many ``sequences``. ``sustained`` is as in
    ``Case``.
    """
    sizes = record["sizes"]
    width = sizes["width"]
    network = Planned(
        layers=sizes["num_blocks"],
        hidden=width,
        heads=width // HEAD,
        vocabulary=sizes["vocabulary"],
        sequence=record["length"],
        tied=False,
        dropout=False,
    )
    machine = nodes_of(record["accelerator"], 8)
    case = Case(network, 8 * sequences, machine, sustained=sustained)
    layout = Layout(8, micro_batch=sequences, recompute="full", zero=3)
    return case.seconds(layout)


def simulated_step(record: Mapping[str, Any], sequences: int) -> float:
    """Return the seconds that the record has for the same step."""
    (run,) = (
        run
        for run in record["runs"]
        if (run["world_size"], run["rows"]) == (8, sequences)
        and run["checkpointed"]
    )
    return float(run["seconds"])


def clocks_table(record: Mapping[str, Any]) -> Table:
    """Return a table of steps by both clocks, for 1 and for 16 sequences."""
    rows = []
    for sequences in (1, 16):
        long = planned_step(record, sequences).total
        short = planned_step(record, sequences, sustained=1.0).total
        rows.append(
            {
                "sequences on each": sequences,
                "planner, a long run, s": f"{long:.3f}",
                "planner, full rate, s": f"{short:.3f}",
                "simulated, s": f"{simulated_step(record, sequences):.3f}",
            }
        )
    return table(rows)
