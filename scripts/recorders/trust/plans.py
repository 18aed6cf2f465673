"""What the planner says of layouts whose steps were measured.

Two numbers were fitted, the parts of their rate that cards keep in a long run
(``SUSTAINED`` in ``dpbook.planner.work``). The H100's was chosen by one row,
7B on 8 of them, the A100's by two sources. So each of the two is predicted
once more, by what the other alone would have chosen: these rows are left out
of the fit, and they test it.

How many stages a device had for Llama 3 was not told: 8 are assumed, of a
layer each. Its kernel of attention was not told either: FlashAttention-2 is
assumed, with which the runs with ZeRO-3 were made. The runs of 2021 and 2022
had no fused kernel.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpbook.limits.comparisons import Comparison, Decision, mean_factor
from dpbook.plan_a_run.published import KERNEL, llama3_steps
from dpbook.plan_a_run.published_fsdp import fsdp_steps
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Planned
from dpbook.planner.work import SUSTAINED
from dpkit.sim.hardware import Cluster, cluster
from recorders.trust import cuts, expert_plans
from recorders.trust.decisions import by, neighbours

FITTED = "7B", "8 H100"
LEFT_OUT = ", left out of the fit"
Rows = list[Comparison]
NEAR = 0.02  # of a rate: nobody chooses between two that are as near
WAYS = {
    "full recomputation": ("full", False, "full_seconds"),
    "selective and sequence parallel": (
        "selective",
        True,
        "selective_sp_seconds",
    ),
}


def gpus(count: int, accelerator: str) -> Cluster:
    """Return nodes of 8 devices, each with its own port."""
    link, network = {
        "v100": ("nvlink2", "infiniband200"),
        "a100": ("nvlink3", "infiniband200"),
        "h100": ("nvlink4", "infiniband400"),
    }[accelerator]
    return cluster(count, accelerator, link, ranks_per_node=8, network=network)


def of_2022(
    record: Mapping[str, Any], sustained: float | None = None
) -> Iterator[Comparison]:
    """Compare the steps of Korthikanti and others.

    ``sustained`` is the part of its rate that an A100 keeps; None: the
    planner's.
    """
    for name, row in record["models"].items():
        for configuration, (recompute, rows, key) in WAYS.items():
            layout = Layout(
                1,
                row["tensor"],
                row["pipeline"],
                row["micro_batch"],
                row["interleave"],
                recompute,
                0,
                rows,
                overlap=False,
            )
            where = gpus(row["gpus"], "a100")
            network = NETWORKS[f"{name} of 2022"]
            case = Case(network, row["batch"], where, sustained=sustained)
            seconds = case.seconds(layout).total
            what = f"planned step of {name}", f"{row['gpus']} A100"
            yield _row(*what, configuration, "s", seconds, row[key])


def replicas(record: Mapping[str, Any]) -> Comparison:
    """Compare what 8 replicas of 530B add to a step."""
    row = record["models"]["530B"]
    several = record["data_parallel_530B_seconds"]
    measured = several["eight replicas"] - several["one replica"]
    size = row["tensor"], row["pipeline"], 1, row["interleave"]
    layout = Layout(8, *size, "selective", zero=0, overlap=False)
    where = gpus(layout.num_devices, "a100")
    case = Case(NETWORKS["530B of 2022"], 8 * row["batch"], where)
    seconds = case.seconds(layout).gradients
    what = "planned gradients of 530B", f"{layout.num_devices} A100"
    return _row(*what, "added to a step by 8 replicas", "s", seconds, measured)


def sharded(
    record: Mapping[str, Any],
    accelerator: str,
    sustained: float | None = None,
) -> Iterator[Comparison]:
    """Compare what was trained with ZeRO-3 alone, on cards of a kind."""
    for name, count, b, batch, rate, again in record[accelerator]:
        layers, hidden, heads = record["sizes"][name]
        model = Planned(
            layers=layers,
            hidden=hidden,
            heads=heads,
            vocabulary=record["vocabulary"],
            sequence=record["sequence"],
            dropout=False,
        )
        recompute = "full" if again else "none"
        layout = Layout(count, 1, 1, b, 1, recompute, zero=3)
        where = gpus(count, accelerator)
        case = Case(model, batch, where, sustained=sustained, attention=KERNEL)
        tokens = batch * record["sequence"] / count
        predicted = tokens / case.seconds(layout).total
        card = f"{count} {accelerator.upper()}"
        what = f"ZeRO-3, micro-batches of {b}, {recompute} recomputed"
        row = _row(name, card, what, "tokens/s", predicted, rate)
        fitted = (name, card) == FITTED
        yield replace(row, kind="fitted") if fitted else row


def by_fsdp(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare steps of Llama by PyTorch's FSDP, in plain kernels.

    The others with ZeRO-3 are of a GPT, whose plain kernels are not counted.
    """
    for step in fsdp_steps(record):
        b, again = step.layout.micro_batch, step.layout.recompute
        card = f"{step.layout.num_devices} A100"
        what = f"ZeRO-3, micro-batches of {b}, {again} recomputed"
        names = step.name, card, what, "tokens/s"
        yield _row(*names, step.planned(), step.rate)


def on_a100s(load: Any) -> Rows:
    """Compare the steps that the A100's number was fitted to.

    Each is there twice: as fitted, and left out of the fit.
    """
    foundry = load("plans")["foundry"]
    korthikanti = load("korthikanti2022")

    def of_zero(sustained: float | None = None) -> Rows:
        return list(sharded(foundry, "a100", sustained))

    def of_megatron(sustained: float | None = None) -> Rows:
        return list(of_2022(korthikanti, sustained))

    both = [*of_megatron(), *of_zero()]
    fitted = [replace(row, kind="fitted") for row in both]
    tests = [
        *of_megatron(best_sustained(of_zero)),
        *of_zero(best_sustained(of_megatron)),
    ]
    configurations = (row.configuration + LEFT_OUT for row in tests)
    return fitted + [
        replace(r, configuration=w) for r, w in zip(tests, configurations)
    ]


def best_sustained(rows_at: Callable[[float], Rows]) -> float:
    """Return the part of its rate by which rows are missed least.

    It is the hundredth with the least mean factor.
    """
    return (
        min(range(50, 101), key=lambda n: mean_factor(rows_at(n / 100))) / 100
    )


def kept_rates(load: Any) -> list[tuple[float, float, float]]:
    """Return how far off A100s are planned, by the part of the rate kept.

    A line has that part, and the mean factor of the steps with ZeRO-3, and of
    those of Korthikanti and others. The parts are what each of the two wants
    alone, what is planned with, and all.
    """
    foundry = load("plans")["foundry"]
    korthikanti = load("korthikanti2022")

    def of_zero(part: float) -> Rows:
        return list(sharded(foundry, "a100", part))

    def of_megatron(part: float) -> Rows:
        return list(of_2022(korthikanti, part))

    each = best_sustained(of_zero), best_sustained(of_megatron)
    parts = sorted({*each, SUSTAINED["a100"], 1.0})
    return [
        (part, mean_factor(of_zero(part)), mean_factor(of_megatron(part)))
        for part in parts
    ]


def llama3(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare steps of Llama 3, from the arithmetic that GPUs did."""
    for step in llama3_steps(record):
        layout = step.layout
        seconds = step.case.seconds(layout).total
        what = "planned step of Llama 3 405B", f"{layout.num_devices:,} H100"
        cut = f"{layout.words_of_cut}, 8 stages a device assumed"
        yield _row(*what, cut, "s", seconds, step.seconds())


def resnet50(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare ResNet-50 on 8 GPUs, in mixed precision."""
    for accelerator in ("v100", "a100"):
        rates = record["images_per_second"][accelerator.upper()]["mixed"]
        case = Case(NETWORKS["ResNet-50"], 2048, gpus(8, accelerator))
        layout = Layout(8, micro_batch=256, zero=0)
        predicted = 2048 / case.seconds(layout).total
        what = (
            "planned ResNet-50",
            f"8 {accelerator.upper()}",
            "batch 256 each",
        )
        yield _row(*what, "images/s", predicted, rates["8"])


def comparisons(load: Any) -> Rows:
    """Return all rows; ``load`` reads a record by its name."""
    plans = load("plans")
    return [
        *on_a100s(load),
        replicas(load("korthikanti2022")),
        *sharded(plans["foundry"], "h100"),
        *by_fsdp(plans["fsdp2"]),
        *llama3(plans["llama3"]),
        *resnet50(load("resnet50_nvidia")),
        *cuts.rows(plans["cuts"], gpus),
        *expert_plans.rows(plans["experts"]),
    ]


def orders(load: Any) -> list[Decision]:
    """Return the decisions that are published without numbers."""
    return list(cuts.orders(load("plans")["cuts"], gpus))


def decisions(rows: Rows) -> Iterator[Decision]:
    """Ask which recomputation is faster, which of several sizes, which cut.

    Nothing is asked where two layouts differ by less than ``NEAR``.
    """
    faster = "which is faster"
    yield from cuts.decisions(rows)
    for group in by(rows, lambda row: f"{row.subject} {row.hardware[-4:]}"):
        steps = [
            r for r in group if r.unit == "s" and LEFT_OUT in r.configuration
        ]
        for found in neighbours(steps, faster, _way):
            on = f"{found.hardware}, {group[0].subject}"
            yield replace(found, hardware=on)
        rates = [row for row in group if row.unit == "tokens/s"]
        for found in neighbours(_apart(rates), faster, lambda r: r.hardware):
            yield replace(
                found, hardware=f"a GPU of them, for {rates[0].subject}"
            )


def _way(row: Comparison) -> str:
    return row.configuration.removesuffix(LEFT_OUT)


def _apart(rows: Rows) -> Rows:
    """Leave out rows that are near the one before."""
    kept: Rows = []
    for row in sorted(rows, key=lambda row: row.measured):
        if not kept or row.measured > (1 + NEAR) * kept[-1].measured:
            kept.append(row)
    return kept


def _row(
    subject: str,
    hardware: str,
    configuration: str,
    unit: str,
    predicted: float,
    measured: float,
) -> Comparison:
    work = cuts.work_of(configuration, hardware)
    values = unit, predicted, measured, "unseen", work
    return Comparison(subject, hardware, configuration, *values)
