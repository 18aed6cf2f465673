"""Steps of Llama by PyTorch's FSDP, and what plans with either kernels say.

The kernel of attention was not named: FlashAttention-2 is assumed, which
PyTorch took on an A100.

Source:
    ``pytorch/torchtitan``, docs/performance.md, commit 0413364.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dpbook.explore.planner import nodes_of
from dpbook.plan_a_run.published import KERNEL
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import Planned
from dpkit.tables import Table, table
from dpkit.units import show_factor


class MeasuredRate(NamedTuple):
    """A step that was taken by ZeRO-3 alone, and its rate."""

    name: str  #: of the network
    network: Planned
    batch: int  #: examples of a step
    layout: Layout
    rate: float  #: tokens a second of each GPU

    def planned(self, kernels: str = "") -> float:
        """Return the rate that is planned.

        Args:
            kernels: "plain" or "fused"; "" for those of such a program.
        """
        machine = nodes_of("a100", self.layout.num_devices)
        case = Case(
            self.network,
            self.batch,
            machine,
            attention=KERNEL,
            kernels=kernels,
        )
        tokens = self.batch * self.network.sequence / self.layout.num_devices
        return tokens / case.seconds(self.layout).total


def fsdp_steps(record: Mapping[str, Any]) -> Iterator[MeasuredRate]:
    """Yield the steps of a record, the table ``fsdp2`` of ``plans.json``."""
    for name, count, b, batch, rate, again in record["a100"]:
        layers, h, heads, keys, inner, vocabulary, sequence = record["sizes"][
            name
        ]
        network = Planned(
            layers=layers,
            hidden=h,
            heads=heads,
            vocabulary=vocabulary,
            sequence=sequence,
            feed_forward=inner,
            key_heads=keys,
            gated=True,
            tied=False,
            dropout=False,
        )
        recompute = "full" if again else "none"
        layout = Layout(
            count,
            micro_batch=b,
            recompute=recompute,
            zero=3,
            gathered="kept",
        )
        yield MeasuredRate(
            name, network=network, batch=batch, layout=layout, rate=rate
        )


def kernels_table(record: Mapping[str, Any]) -> Table:
    """Return measured rates, and by how much plans are off."""
    rows = []
    for step in fsdp_steps(record):
        row: dict[str, object] = {
            "network": step.name,
            "rows": step.layout.micro_batch,
            "recompute": step.layout.recompute,
            "measured, tokens/s": f"{step.rate:,.0f}",
        }
        for kernels in ("fused", "plain"):
            rate = step.planned(kernels)
            row[f"{kernels}, tokens/s"] = f"{rate:,.0f}"
            row[f"off, {kernels}"] = show_factor(rate / step.rate)
        rows.append(row)
    return table(rows)
