"""BERT-large on one GPU, and one of its layers, published and simulated.

The records ``bert_nvidia`` and ``bert_layer_v100`` have what was measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpbook.limits.comparisons import Comparison
from dpkit.sim.hardware import ACCELERATORS, Accelerator
from recorders.trust.bert import (
    HIDDEN,
    layer_sequences_per_second,
    sequences_per_second,
)

# Classes of work.
STEPS = "small transformers"
LAYERS = "one layer"
GIB = 2**30
# Hardware -> the preset, with the memory that the source names. An A100 of
# 40 GB has slower memory; the record bert_nvidia has the source.
GPUS: dict[str, Accelerator] = {
    "V100 16 GB": ACCELERATORS["v100"],
    "V100 32 GB": replace(ACCELERATORS["v100"], memory_bytes=32 * GIB),
    "A100 40 GB": replace(
        ACCELERATORS["a100"], memory_bytes=40 * GIB, bytes_per_second=1.555e12
    ),
    "A100 80 GB": ACCELERATORS["a100"],
}


def step_comparisons(published: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the sequences per second of training BERT-large."""
    for name, rows in published["rows"].items():
        task, words = name.split(", ")
        length = int(words.removesuffix(" words"))
        for gpu, precision, batch, accumulated, rate in rows:
            # In FP32 and TF32 the program for questions had another Adam,
            # which goes from weight to weight.
            fused = task == "pre-training" or precision == "mixed"
            sizes = batch, length, accumulated
            predicted = sequences_per_second(
                task, *sizes, precision, fused, accelerator=GPUS[gpu]
            )
            where = f"{gpu} {precision}", f"1 GPU, batch {batch}"
            yield _row(f"BERT-large, {name}", *where, predicted, rate, STEPS)


def layer_comparisons(published: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the sequences per second of one layer, by their number."""
    for words, by_pass in published["teraflops"].items():
        length = int(words)
        forward = layer_flops(length)
        for name, rates in by_pass.items():
            backward = name == "forward and backward"
            flops = 3 * forward if backward else forward
            for batch, rate in zip(published["batches"], rates, strict=True):
                predicted = layer_sequences_per_second(
                    batch, length, backward, accelerator="v100"
                )
                measured = 1e12 * rate / flops
                what = f"a layer of BERT-large, {words} words, {name}"
                where = "V100 float16", f"batch {batch}"
                yield _row(what, *where, predicted, measured, LAYERS)


def layer_flops(length: int) -> int:
    """Return the operations of a layer for a sequence, as its source counts.

    A sequence of 128 words takes 3.29e9.
    """
    products = 24 * length * HIDDEN**2
    return products + 4 * HIDDEN * length**2


def _row(
    subject: str,
    hardware: str,
    configuration: str,
    predicted: float,
    measured: float,
    work: str,
) -> Comparison:
    names = subject, hardware, configuration, "sequences/s"
    return Comparison(*names, predicted, measured, "unseen", work)
