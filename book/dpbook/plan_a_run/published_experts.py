"""Steps of layers with experts as they were published, split in five ways.

The ways are the paper's, with t devices in a tensor group::

    name here               its name            what is divided
    experts gathered    FSDP                all, by ZeRO-3
    parts gathered      FSDP + EP           experts; the parts by ZeRO-3
    one stage           TP + EP + DP        experts; each is on t devices
    stages, u = t       MCore               the same, and the network
    stages, u = 1       MCore w/ Folding    each expert is on one device

A share of the peak was published for each, so that the seconds of a step
follow from its arithmetic. A device of a pipeline has a stage for each layer.
The planner's assumptions, of which the paper says nothing: FlashAttention-2,
micro-batches of one sequence, and that backward computed nothing again.

Source:
    D. Liu et al., MoE Parallel Folding, 2025, arXiv:2504.14960, tables 3 to 5.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dpbook.explore.planner import nodes_of
from dpbook.plan_a_run.published import KERNEL, PublishedStep
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Planned
from dpkit.tables import Table, table

WAYS = {
    "FSDP": "experts gathered",
    "FSDP + EP": "parts gathered",
    "TP + EP + DP": "one stage",
    "MCore": "stages, u = t",
    "MCore w/ Folding": "stages, u = 1",
}


class ExpertsStep(NamedTuple):
    """A step that was taken, its network and the way it was split."""

    name: str  #: of the network
    way: str  #: one of the values of ``WAYS``
    step: PublishedStep


def network_with_experts(
    record: Mapping[str, Any], name: str, sequence: int
) -> Planned:
    """Return a network of a record, with examples of this length.

    Args:
        record: The table ``experts`` of ``plans.json``.
        name: One of its networks: 8x22B, or the same with more and narrower
            experts.
        sequence: The tokens of an example.
    """
    count, choices, inner = record["networks"][name]
    network = NETWORKS["8x22B"]
    assert isinstance(network, Planned)
    return replace(
        network,
        experts=count,
        choices=choices,
        feed_forward=inner,
        sequence=sequence,
    )


def steps_with_experts(record: Mapping[str, Any]) -> Iterator[ExpertsStep]:
    """Yield the steps of a record, the table ``experts`` of ``plans.json``."""
    for name, way, sequence, batch, count, *cut, share in record["rows"]:
        t, c, p, e, u, zero = cut
        network = network_with_experts(record, name, sequence)
        layout = Layout(
            count // (t * c * p),
            t,
            p,
            chunks=record["stages_of_a_device"] if p > 1 else 1,
            zero=zero,
            context=c,
            expert=e,
            expert_tensor=u,
        )
        machine = nodes_of("h100", count)
        case = Case(network, batch, machine, attention=KERNEL)
        rate = share / 100 * record["peak_teraflops"]
        step = PublishedStep(network, case, layout, rate)
        yield ExpertsStep(name, WAYS[way], step)


def ways_table(steps: Iterable[ExpertsStep]) -> Table:
    """Return a line for each step: as measured, and as planned."""
    lines = []
    for name, way, step in steps:
        seconds = step.case.seconds(step.layout)
        memory = step.case.memory(step.layout).total
        lines.append(
            {
                "network": name,
                "way": way,
                "d × t × p": step.layout.words_of_cut.replace(" ", "\xa0"),
                "measured, s": f"{step.seconds():.2f}",
                "planned, s": f"{seconds.total:.2f}",
                "in layers": f"{seconds.messages / seconds.total:.0%}",
                "gradients": f"{seconds.gradients / seconds.total:.0%}",
                "GiB": f"{memory / 2**30:.0f}",
            }
        )
    return table(lines)
