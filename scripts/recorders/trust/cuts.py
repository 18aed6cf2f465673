"""What the planner says of steps that were split in several ways.

Table 2 of Narayanan and others, 2021: each step once by ZeRO-3 alone and once
by tensor groups, pipelines and replicas. Two of their figures tell an order;
their numbers stand in pictures, and the text names the fastest cut.

What the paper leaves open is taken as simple as can be: one stage a device,
and nothing sent during the arithmetic. The steps by ZeRO-3 were made with
DeepSpeed of 2021, which sent a message for each tensor; its settings are not
told, and taken as the library's own (``planner.zero_messages``).
"""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpbook.limits.comparisons import Comparison, Decision
from dpbook.limits.trust import BY_ZERO, PLANS
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Network, Planned
from dpbook.planner.zero_messages import BY_TENSOR
from dpkit.sim.hardware import Cluster
from recorders.trust.decisions import by, neighbours

WORDS = 51_200
SEQUENCE = 2048
OF_2021 = "cut of 2021"  # how subjects of these rows begin
FASTER = "which cut is faster"
FASTEST = "which of five cuts is the fastest"


def work_of(configuration: str, hardware: str) -> str:
    """Return the class of work of a plan."""
    if "ZeRO-3" not in configuration:
        return PLANS[0]
    return BY_ZERO[hardware.split()[-1]]


def rows(record: Mapping[str, Any], gpus: Any) -> list[Comparison]:
    """Compare the steps of table 2; ``gpus`` makes a cluster."""
    found = []
    for name, batch, count, *cut, teraflops in record["steps"]["rows"]:
        d, t, p, b, zero = cut
        case = case_of(name, batch, gpus(count, "a100"), zero)
        layout = _layout((d, t, p), b, zero)
        seconds = case.seconds(layout).total
        flops = flops_computed_twice(case.network, batch)
        measured = flops / (count * teraflops * 1e12)
        what = f"{OF_2021}, {name.split()[0]}", f"{count:,} A100"
        configuration = f"{d} × {t} × {p}" + (", ZeRO-3" if zero else "")
        work = work_of(configuration, what[1])
        values = "s", seconds, measured, "unseen", work
        found.append(Comparison(*what, configuration, *values))
    return found


def case_of(name: str, batch: int, machine: Cluster, zero: int) -> Case:
    """Return a step of table 2, with the messages of its program."""
    case = Case(NETWORKS[name], batch, machine)
    return replace(case, zero_messages=BY_TENSOR) if zero == 3 else case


def flops_computed_twice(network: Network, batch: int) -> float:
    """Return the arithmetic of a step that computes all layers again.

    Source:
        Formula 3 of the paper: 96Bslh²(1 + s/6h + V/16lh).
    """
    assert isinstance(network, Planned)
    s = network.sequence
    h = network.hidden
    layers = network.layers
    inside = 1 + s / (6 * h) + network.vocabulary / (16 * layers * h)
    return 96 * batch * s * layers * h**2 * inside


def decisions(found: list[Comparison]) -> Iterator[Decision]:
    """Ask of each step of table 2 which of its two cuts is faster."""
    cuts = [row for row in found if row.subject.startswith(OF_2021)]
    for group in by(cuts, lambda row: f"{row.subject} {row.hardware}"):
        named = operator.attrgetter("configuration")
        yield from neighbours(group, FASTER, named, BY_ZERO["A100"])


def orders(record: Mapping[str, Any], gpus: Any) -> Iterator[Decision]:
    """Ask which of five cuts is the fastest, where the paper says it."""
    for figure in record["orders"]["figures"]:
        layers, hidden, heads = figure["sizes"]
        network = Planned(
            layers=layers,
            hidden=hidden,
            heads=heads,
            vocabulary=WORDS,
            sequence=SEQUENCE,
            fused=False,
            dtype="float16",
        )
        for batch in figure["batches"]:
            case = Case(network, batch, gpus(64, "a100"))
            seconds = {
                " × ".join(map(str, cut)): case.seconds(_layout(cut)).total
                for cut in figure["cuts"]
            }
            best = min(seconds, key=lambda cut: seconds[cut])
            answers = best, " × ".join(map(str, figure["fastest"]))
            what = f"{figure['name']}, {batch} examples"
            yield Decision(FASTEST, what, "64 A100", *answers, PLANS[0])


def _layout(
    cut: tuple[int, int, int], micro_batch: int = 1, zero: int = 0
) -> Layout:
    return Layout(
        *cut,
        micro_batch,
        recompute="full",
        zero=zero,
        sequence_parallel=False,
        overlap=False,
    )
