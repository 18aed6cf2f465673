"""Predict all that was measured, and record both in book/_data.

Usage: python scripts/record.py comparisons

The clock is simulated, so that the numbers are the same on any machine until
a preset or the model of costs changes. It takes some minutes on a CPU core.
What ``recorders.published`` records is taken from there: run it before.
"""

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

from dpbook.limits.comparisons import Comparison
from recorders.provenance import DATA, load, provenance, store
from recorders.trust import (
    attention,
    collectives,
    convolution_rates,
    grouped,
    korthikanti,
    links,
    notebook,
    pipelines,
    plans,
    small_transformers,
)
from recorders.trust.decided import decided

DIGITS = 4  # that are stored of a number
Rows = list[Comparison]


def begun_with() -> Rows:
    """Compare what the chapters begin with."""
    return [
        *notebook.notebook_rows(load("v100_notebook")),
        *notebook.lenet_rows(load("published")),
        *notebook.resnet18_rows(load("published_resnet18")),
    ]


def on_pcie() -> Rows:
    """Compare copies and rings of cards on PCI Express."""
    record = load("pcie")
    servers = load("nccl_servers")["tables"]
    v100s = links.allreduce_rows(
        servers["v100-pcie"], "pcie3-p2p", links.FITTED
    )
    others = links.allreduce_rows(record["allreduce"], "pcie3")
    return [*links.copy_rows(record["copies"]), *v100s, *others]


def by_a_library() -> Rows:
    """Compare NCCL's allreduces."""
    return [
        *collectives.server_rows(DATA / "nccl_servers.json"),
        *collectives.h200_rows(load("nccl_h200")),
    ]


def one_gpu() -> Rows:
    """Compare networks of convolutions on one GPU."""
    tensorflow = load("tensorflow_2017")
    # The rates of the K80 were fitted to this table, those of the P100 not.
    left_out = [
        replace(row, configuration=f"{row.configuration}, left out of a fit")
        for _, row in convolution_rates.left_out(tensorflow, "k80 GCE")
    ]
    return [
        *convolution_rates.one_gpu_comparisons(tensorflow),
        *left_out,
        *convolution_rates.nvidia_comparisons(load("resnet50_nvidia")),
    ]


def in_groups() -> Rows:
    """Compare networks of grouped convolutions on one GPU."""
    return list(grouped.one_gpu_comparisons(load("grouped_nvidia")))


def several_gpus() -> Rows:
    """Compare the same networks on several GPUs with one."""
    tensorflow = load("tensorflow_2017")
    return [
        *(
            row
            for hardware in convolution_rates.HARDWARE
            for row in convolution_rates.scaling_comparisons(
                tensorflow, hardware
            )
        ),
        *convolution_rates.nvidia_scaling(load("resnet50_nvidia")),
        *grouped.scaling_comparisons(load("grouped_nvidia")),
    ]


def in_stages() -> Rows:
    """Compare the published pipelines."""
    tutorial = load("pytorch_model_parallel"), load("resnet50_pipeline")
    torchgpipe = load("torchgpipe_amoebanet"), load("amoebanet_p40")
    return [
        *pipelines.tutorial_rows(*tutorial),
        *pipelines.torchgpipe_rows(*torchgpipe),
    ]


def transformers() -> Rows:
    """Compare the published transformers."""
    return list(korthikanti.comparisons(load("korthikanti2022")))


def on_one_gpu() -> Rows:
    """Compare small transformers on one GPU, and one layer of them."""
    return [
        *small_transformers.step_comparisons(load("bert_nvidia")),
        *small_transformers.layer_comparisons(load("bert_layer_v100")),
    ]


def kernels_of_attention() -> Rows:
    """Compare fused attention on one GPU."""
    return attention.comparisons(load)


def planned() -> Rows:
    """Compare what the planner says."""
    return plans.comparisons(load)


PARTS: tuple[Callable[[], Rows], ...] = (
    begun_with,
    on_pcie,
    by_a_library,
    in_stages,
    one_gpu,
    in_groups,
    transformers,
    on_one_gpu,
    kernels_of_attention,
    several_gpus,
    planned,
)


def with_fused_attention() -> dict[str, float]:
    """Return model -> seconds of a step, full recomputation.

    These steps were not measured so: attention was unfused at the time.
    """
    models = load("korthikanti2022")["models"]
    return {
        name: _rounded(
            korthikanti.step_seconds(
                korthikanti.model_of(numbers), "full", fused=True
            )
        )
        for name, numbers in models.items()
    }


def k80_points() -> dict[str, dict[str, float]]:
    """Return the misses of several K80s, by their wiring and their rates."""
    found = convolution_rates.k80_points(load("tensorflow_2017"))
    return {
        wiring: {rates: _rounded(points) for rates, points in row.items()}
        for wiring, row in found.items()
    }


def main() -> None:
    """Predict all, decide, and write both."""
    rows: Rows = []
    for part in PARTS:
        rows += part()
        print(f"{part.__name__}: {len(rows)} rows", flush=True)
    decisions = decided(rows) + plans.orders(load)
    command = "python scripts/record.py comparisons"
    facts = provenance(command) | {"clock": "simulated"}
    record: dict[str, Any] = {
        "provenance": facts,
        "what": "rows: what the fields of Comparison are; decisions: Decision",
        "rows": [_short(row) for row in rows],
        "decisions": [astuple(decision) for decision in decisions],
        "fused_attention_seconds": with_fused_attention(),
        "k80_points": k80_points(),
        "kept_rates": [
            [_rounded(value) for value in row]
            for row in plans.kept_rates(load)
        ],
    }
    store("comparisons", record)


def _short(row: Comparison) -> list[Any]:
    return [
        _rounded(value) if isinstance(value, float) else value
        for value in astuple(row)
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
