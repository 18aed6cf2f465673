"""What steps by ZeRO-3 alone would take, message by message."""

from collections.abc import Iterable, Sequence
from typing import Any

from dpbook.explore.planner import nodes_of
from dpbook.limits.comparisons import Comparison
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS
from dpbook.planner.zero_messages import BY_BLOCK, BY_TENSOR
from dpkit.tables import Table, table

# The head of a column -> the messages, and whether arithmetic hides them.
WAYS = {
    "hidden": (BY_BLOCK, True),
    "of blocks": (BY_BLOCK, False),
    "of tensors": (BY_TENSOR._replace(in_pieces=False), False),
    "of pieces too": (BY_TENSOR, False),
}


def zero_messages_table(
    steps: Iterable[Sequence[Any]], rows: Iterable[Comparison]
) -> Table:
    """Return the seconds of steps by ZeRO-3 alone, as charges are added.

    Args:
        steps: Network, examples, devices, data, tensor, pipeline,
            micro-batch, stage of ZeRO and rate of each: table 2 of the paper.
        rows: Comparisons, which have what was measured.
    """
    measured = {
        (row.subject.split(", ")[-1], row.hardware): row.measured
        for row in rows
        if row.subject.startswith("cut of") and "ZeRO-3" in row.configuration
    }
    lines = []
    for name, batch, count, data, _, _, micro_batch, zero, _ in steps:
        if zero == 3:
            layout = Layout(
                data, micro_batch=micro_batch, recompute="full", zero=zero
            )
            machine = nodes_of("a100", count)
            line = {"network": name.split()[0], "GPUs": f"{count:,}"}
            for way, (messages, overlap) in WAYS.items():
                case = Case(
                    NETWORKS[name], batch, machine, zero_messages=messages
                )
                hidden = layout._replace(overlap=overlap)
                line[way] = f"{case.seconds(hidden).total:.1f}"
            of_step = measured[line["network"], f"{count:,} A100"]
            lines.append(line | {"measured": f"{of_step:.1f}"})
    return table(lines)
