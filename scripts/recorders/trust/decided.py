"""Which decisions hang on the rows of each class of work."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from dpbook.limits.comparisons import Comparison, Decision, unseen
from dpbook.limits.trust import PLANS, WITH_EXPERTS
from recorders.trust import expert_plans, grouped, plans
from recorders.trust.collectives import ACROSS, BY_MESSAGES, INSIDE
from recorders.trust.decisions import (
    by,
    how_many,
    is_more,
    joins,
    neighbours,
    smallest,
)
from recorders.trust.pipelines import SPEEDUPS
from recorders.trust.small_transformers import LAYERS, STEPS

FASTER = "which is faster"
Rows = list[Comparison]


def decided(rows: Iterable[Comparison]) -> list[Decision]:
    """Return the decisions that hang on rows to which nothing is fitted."""
    left = sorted(unseen(rows), key=lambda row: row.work)
    of = {work: list(group) for work, group in groupby(left, _work)}
    return [
        *_copies(of["copies"]),
        *_networks(of["convolutions"]),
        *_of_each_network(of[grouped.GROUPED]),
        *_on_each_gpu(of[grouped.GROUPED]),
        *_of_each_network(of[grouped.DEPTHWISE]),
        *_on_each_gpu(of[grouped.DEPTHWISE]),
        *_scaling(of["scaling"]),
        *_pipelines(of[SPEEDUPS]),
        *_transformers(of["transformers"]),
        *_of_each_network(of[STEPS]),
        *_batches(of[LAYERS]),
        *plans.decisions([row for work in PLANS for row in of[work]]),
        *expert_plans.decisions(of[WITH_EXPERTS]),
        *_collectives(of[INSIDE] + of[ACROSS] + of[BY_MESSAGES]),
    ]


def _work(row: Comparison) -> str:
    return row.work


def _configuration(row: Comparison) -> str:
    return row.configuration


def _copies(rows: Rows) -> Iterator[Decision]:
    """Ask whether both ways at once carry a tenth more than one."""
    through = [row for row in rows if row.unit == "GB/s"]
    for one, both in zip(through[::2], through[1::2], strict=True):
        more = (
            both.predicted > 1.1 * one.predicted,
            both.measured > 1.1 * one.measured,
        )
        answers = ("yes" if x else "no" for x in more)
        what = f"copies, {one.configuration.split(',')[0]}"
        who = what, one.hardware, *answers, one.work
        yield Decision("do both ways at once carry more than one", *who)


def _networks(rows: Rows) -> Iterator[Decision]:
    """Ask which network is faster on a GPU, and which GPU for a network.

    On the P100 by its preset; on the K80, whose preset saw all networks, by
    the rates of fits without them.
    """
    nvidia = [row for row in rows if row.subject == "resnet50 v1.5"]
    for decision in neighbours(nvidia, FASTER, lambda row: row.hardware):
        yield replace(decision, hardware="which GPU, for ResNet-50")
    for group in by(rows, lambda row: row.hardware):
        preset = [r for r in group if "left out" not in r.configuration]
        if group[0] not in nvidia:
            chosen = preset or group
            yield from neighbours(chosen, FASTER, lambda row: row.subject)


def _of_each_network(rows: Rows) -> Iterator[Decision]:
    """Ask which GPU, in which precision, is faster for a network."""
    for group in by(rows, lambda row: row.subject):
        for decision in neighbours(group, FASTER, lambda row: row.hardware):
            on = f"which GPU, for {group[0].subject}"
            yield replace(decision, hardware=on)


def _on_each_gpu(rows: Rows) -> Iterator[Decision]:
    """Ask which network is faster on a GPU."""
    for group in by(rows, lambda row: row.hardware):
        yield from neighbours(group, FASTER, lambda row: row.subject)


def _batches(rows: Rows) -> Iterator[Decision]:
    """Ask from which batch on a layer does no longer wait for the host."""
    for group in by(rows, lambda row: row.subject):
        yield smallest(group)


def _scaling(rows: Rows) -> Iterator[Decision]:
    shares = [row for row in rows if row.unit == "of k times one"]
    for group in by(shares, lambda row: f"{row.hardware} {row.subject}"):
        yield how_many(group)
    for row in rows:
        if row.unit == "times as long":
            yield is_more(row, "is it slower than one GPU")
        elif row not in shares:
            yield is_more(row, "is it faster than one GPU")


def _pipelines(rows: Rows) -> Iterator[Decision]:
    """Ask whether a cut helps at all, and which is the faster."""
    for row in rows:
        if row.unit == "times one GPU's":
            what = f"{row.subject}: {row.configuration}"
            named = replace(row, subject=what)
            yield is_more(named, "is it slower than one GPU")
    for group in by(rows, lambda row: row.subject):
        yield from neighbours(group, FASTER, _configuration)


def _transformers(rows: Rows) -> Iterator[Decision]:
    """Ask which way to recompute is faster: of each step, and of a layer."""
    for group in by(rows, lambda row: row.subject):
        if group[0].subject.startswith("a step"):
            step = neighbours(group, FASTER, _configuration)
            for decision in step:
                on = f"{decision.hardware}, {group[0].subject}"
                yield replace(decision, hardware=on)
    backward = [r for r in rows if r.configuration.endswith("backward")]
    ways = neighbours(backward, FASTER, lambda r: r.configuration[:-10])
    for decision in ways:  # without ", backward"
        yield replace(decision, hardware="A100, a layer, backward")


def _collectives(rows: Rows) -> Iterator[Decision]:
    for table in by(rows, lambda row: f"{row.subject} {row.hardware}"):
        if len(table) > 1:
            yield from joins(table)
