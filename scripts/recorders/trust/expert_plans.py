"""What the planner says of steps of layers with experts, in five ways."""

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from dpbook.limits.comparisons import Comparison, Decision
from dpbook.limits.trust import WITH_EXPERTS
from dpbook.plan_a_run.published_experts import steps_with_experts
from recorders.trust.cuts import FASTER
from recorders.trust.decisions import by, neighbours


def rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the steps of the table ``experts`` of ``plans.json``."""
    for name, way, step in steps_with_experts(record):
        layout, case = step.layout, step.case
        count = f"{layout.num_devices:,} H100"
        examples = f"{case.batch} sequences of {step.network.sequence:,}"
        yield Comparison(
            subject=f"{name}, {examples}",
            hardware=count,
            configuration=f"{way}: {layout.words_of_cut}",
            unit="s",
            predicted=case.seconds(layout).total,
            measured=step.seconds(),
            kind="unseen",
            work=WITH_EXPERTS,
        )


def decisions(found: list[Comparison]) -> Iterator[Decision]:
    """Ask of each step which of two ways is faster, neighbours in time."""
    for group in by(found, lambda row: f"{row.subject} {row.hardware}"):
        named = operator.attrgetter("configuration")
        yield from neighbours(group, FASTER, named)
