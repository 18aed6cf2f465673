"""Rates of fused attention, and what they say of kernels that were measured.

The record ``attention_rates`` has TFLOP/s of kernels on one card. A preset's
rate is fitted to groups with heads of 128, with and without a causal mask. All
other groups are held apart: other sizes of heads, cards of other people, other
versions.

A rate counts the scores that a kernel computes. In causal attention these are
more than the source counts, by blocks: 1 + 128/s times as many with
FlashAttention-2, forward. So 335 counted TFLOP/s of 16,384 tokens are 338.

Both directions together are 2 products forward and 5 backward. If a is the
rate forward, b backward and r of both, then 7/r = 2/a + 5/b.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import geometric_mean
from typing import Any

from dpbook.limits.comparisons import Comparison
from dpkit.sim.hardware import (
    ACCELERATORS,
    Accelerator,
    block_side,
    num_scores,
    operation_seconds,
)

# How many products a direction has.
PRODUCTS = {"forward": 2, "backward": 5}
NAMES = {
    "flash": "FlashAttention-2",
    "efficient": "memory-efficient",
    "cudnn": "cuDNN",
}
Group = Mapping[str, Any]


def computed_over_counted(group: Group, length: int, direction: str) -> float:
    """Return how many scores are computed for one that is counted."""
    if not group["causal"]:
        return 1.0
    side = block_side(
        group["kernel"], direction == "backward", group["head_size"]
    )
    return num_scores(length, length, side=side) / (length**2 / 2)


def counted_flops(group: Group, length: int, direction: str) -> float:
    """Return the operations that the source counts."""
    pairs = max(group["tokens"], length) * length
    pairs /= 2 if group["causal"] else 1
    return 2.0 * PRODUCTS[direction] * pairs * group["width"]


def predicted(
    group: Group, length: int, accelerator: Accelerator | None = None
) -> float:
    """Return the TFLOP/s that a preset says, counted as the source does."""
    gpu = accelerator or ACCELERATORS[group["card"]]
    flops = 0.0
    seconds = 0.0
    for direction in directions(group):
        counted = counted_flops(group, length, direction)
        done = counted * computed_over_counted(group, length, direction)
        kind = group["kernel"]
        kind += " backward" if direction == "backward" else ""
        flops += counted
        seconds += operation_seconds(
            gpu, flops=done, num_bytes=0, dtype=group["dtype"], kind=kind
        )
    return flops / seconds / 1e12


def directions(group: Group) -> list[str]:
    """Return the directions that were measured together."""
    both = group["direction"] == "both"
    return list(PRODUCTS) if both else [group["direction"]]


def rates_of(
    record: Mapping[str, Any], card: str, kernel: str, direction: str
) -> list[float]:
    """Return measured rates of the groups that set one, by what is computed.

    They are in TFLOP/s. A rate of both directions is corrected by the mean of
    the two.

    Args:
        record: What ``book/_data/attention_rates.json`` holds.
        card: The name of the card in the record.
        kernel: That of the kernel.
        direction: "forward", "backward" or "both", as the record has it.
    """
    found = []
    for group in record["groups"]:
        names = group["card"], group["kernel"], group["direction"]
        if group["use"] == "fitted" and names == (card, kernel, direction):
            for tokens, rate in group["teraflops"].items():
                products = {d: PRODUCTS[d] for d in directions(group)}
                more = sum(
                    count * computed_over_counted(group, int(tokens), d)
                    for d, count in products.items()
                )
                found.append(rate * more / sum(products.values()))
    return found


def fitted(
    record: Mapping[str, Any], card: str, kernel: str
) -> tuple[float, float]:
    """Return TFLOP/s forward and backward, by the groups that set them."""
    forward, backward, both = (
        rates_of(record, card, kernel, direction)
        for direction in (*PRODUCTS, "both")
    )
    if (card, kernel) == ("a100", "flash"):  # only both were found
        part = record["ratios"]["a100_flash_backward_of_forward"]
        rate = geometric_mean(both) * (2 + 5 / part) / 7
        return rate, part * rate
    rate = geometric_mean(forward)
    if both:
        return rate, 5 / (7 / geometric_mean(both) - 2 / rate)
    if (card, kernel) == ("h100", "cudnn"):  # only forward was found
        a, b = fitted(record, "h200", "cudnn")
        return rate, rate * b / a
    return rate, geometric_mean(backward)


def rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the mean of each group, over its lengths."""
    for group in record["groups"]:
        lengths = [int(tokens) for tokens in group["teraflops"]]
        mask = "causal" if group["causal"] else "full"
        ends = sorted({min(lengths), max(lengths)})
        span = " to ".join(f"{n:,}" for n in ends)
        way = group["direction"].replace("both", "both ways")
        yield Comparison(
            f"attention, {NAMES[group['kernel']]}, {way}",
            group["card"].upper(),
            f"heads of {group['head_size']}, {mask}, {span} tokens; "
            f"{group['place']}",
            "TFLOP/s",
            geometric_mean(predicted(group, n) for n in lengths),
            geometric_mean(group["teraflops"].values()),
            "fitted" if group["use"] == "fitted" else "unseen",
            "attention",
        )


def comparisons(load: Callable[[str], Any]) -> list[Comparison]:
    """Return all rows; ``load`` reads a record by its name."""
    return list(rows(load("attention_rates")))
