"""Rates of kernels that were timed on an H200, for presets of such cards.

The record ``gpu_operators`` has the seconds of the convolutions of ResNet-50,
forward and backward, in four precisions and two formats of memory, and of
PyTorch's three kernels of attention. The preset ``h200`` takes from it what
nobody has published: the rates of convolutions, and of the kernel "efficient".

A convolution's rate is that in NCHW, the format of PyTorch's tensors by
default, with 256 images. In NHWC ("channels last") those in 16 bits are twice
as fast, and presets know one format.
"""

from collections.abc import Iterator, Mapping
from statistics import geometric_mean
from typing import Any

from dpkit.sim.hardware import ACCELERATORS
from recorders.trust.attention import computed_over_counted

IMAGES = 256
FORMAT = "NCHW"
LEAST_TOKENS = 4096
HEAD_SIZE = 128
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
# Products of a kernel backward, for one forward: of a convolution the
# gradients of the image and of the weights; of attention five for two.
BACKWARD = {"convolution": 2, "attention": 2.5}


def convolution_rates(
    record: Mapping[str, Any], form: str = FORMAT
) -> dict[str, dict[str, float]]:
    """Return class -> precision -> the rate, as a multiple of the peak.

    It is that of all convolutions of a class together, one after another.

    Args:
        record: What ``book/_data/gpu_operators.json`` holds.
        form: The format of memory, "NCHW" or "NHWC".
    """
    peaks = ACCELERATORS["h200"].flops_per_second
    found: dict[str, dict[str, float]] = {"fast": {}, "other": {}}
    for which in found:
        for precision in PRECISIONS:
            rows = [
                row
                for row in record["convolutions"]
                if (row["precision"], row["format"]) == (precision, form)
                and row["rows"] == IMAGES
                and _class_of(row) == which
            ]
            flops = (1 + BACKWARD["convolution"]) * _sum(rows, "flops")
            seconds = _sum(rows, "forward_seconds", "backward_seconds")
            found[which][precision] = flops / seconds / peaks[precision]
    return found


def _class_of(row: Mapping[str, Any]) -> str:
    """Return the class of a convolution, as presets have them."""
    return "fast" if row["kernel"] > 1 and row["stride"] == 1 else "other"


def _sum(rows: list[Mapping[str, Any]], *names: str) -> float:
    return float(sum(row[name] for row in rows for name in names))


def efficient_rates(record: Mapping[str, Any]) -> tuple[float, float]:
    """Return the rates of the kernel "efficient", forward and backward.

    They are fractions of the peak of 16 bits, by what is computed; the
    geometric means over lengths, with and without a mask.

    Args:
        record: What ``book/_data/gpu_operators.json`` holds.
    """
    rows = list(_of_efficient(record))
    forward, backward = (
        geometric_mean(
            times
            * row["flops"]
            * computed_over_counted(row, row["length"], direction)
            / row[f"{direction}_seconds"]
            for row in rows
        )
        for direction, times in (
            ("forward", 1.0),
            ("backward", BACKWARD["attention"]),
        )
    )
    peak = ACCELERATORS["h200"].flops_per_second["bfloat16"]
    return forward / peak, backward / peak


def _of_efficient(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in record["attention"]:
        is_long = row["length"] >= LEAST_TOKENS
        sizes = row["kernel"], row["head_size"]
        if is_long and sizes == ("efficient", HEAD_SIZE):
            yield row
