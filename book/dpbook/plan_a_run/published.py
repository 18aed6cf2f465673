"""Steps of Llama 3 as they were published, and as cases of the planner.

A rate of arithmetic was published, so that the seconds of a step depend on
what is counted as arithmetic. Attention with all pairs of tokens, or with the
half of them that its causal mask leaves, is for 405 billion parameters::

    tokens of a sequence      all pairs    the mask's half
                   8,192      +   8 %          +  4 %      of all other flops
                 131,072      + 134 %          + 67 %

The paper takes its MFU from a source that counts all pairs, and so do all
comparisons with these rows. How many stages a device had was not published: 8
are assumed, of a layer each. FlashAttention-2 is assumed, too.

Source:
    A. Grattafiori et al., The Llama 3 herd of models, 2024, arXiv:2407.21783,
    table 4; A. Chowdhery et al., PaLM, 2022, arXiv:2204.02311, appendix B.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dpbook.explore.planner import nodes_of
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Planned
from dpkit.tables import Table, table
from dpkit.units import show_factor

KERNEL = "flash"  # of attention, in the runs of 2023 and 2024
CHUNKS = 8  # stages of a device


class PublishedStep(NamedTuple):
    """A step that was taken, and the rate of its arithmetic."""

    network: Planned
    case: Case
    layout: Layout
    teraflops: float  #: TFLOP/s of each GPU

    def seconds(self, masked: bool = False) -> float:
        """Return the seconds of the step, from its arithmetic and its rate.

        Args:
            masked: Whether the rate counts the pairs that a causal mask
                leaves, and not all pairs.
        """
        flops = self.network.flops(self.case.batch, masked=masked)
        return flops / (self.layout.num_devices * self.teraflops * 1e12)


def llama3_steps(record: Mapping[str, Any]) -> Iterator[PublishedStep]:
    """Yield the steps of a record, the table ``llama3`` of ``plans.json``."""
    network = NETWORKS["405B"]
    assert isinstance(network, Planned)
    for count, t, c, p, d, sequence, batch, teraflops in record["rows"]:
        layout = Layout(d, t, p, chunks=CHUNKS, zero=2, context=c)
        own = replace(network, sequence=sequence)
        case = Case(own, batch, nodes_of("h100", count), attention=KERNEL)
        yield PublishedStep(own, case, layout, teraflops)


def readings_table(record: Mapping[str, Any]) -> Table:
    """Return planned seconds, and both readings of a published rate."""
    rows = []
    for step in llama3_steps(record):
        planned = step.case.seconds(step.layout).total
        row: dict[str, object] = {
            "d × t × p": step.layout.words_of_cut.replace(" ", "\xa0"),
            "tokens": f"{step.network.sequence:,}",
            "TFLOP/s": f"{step.teraflops:.0f}",
            "planned, s": f"{planned:.1f}",
        }
        for counted, masked in (("all pairs", False), ("half of them", True)):
            seconds = step.seconds(masked)
            row[f"{counted}, s"] = f"{seconds:.1f}"
            row[f"off by, {counted}"] = show_factor(planned / seconds)
        rows.append(row)
    return table(rows)
