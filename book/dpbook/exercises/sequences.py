"""Checks of the exercises on sequences that ranks share."""

from collections.abc import Iterator, Sequence
from math import exp

from dpbook.exercises.verdict import (
    Answer,
    require,
    require_reference,
    require_same,
)

Block = tuple[list[float], list[float]]  # scores, and values


def check_merged_blocks(answer: Answer) -> None:
    """Scores in blocks, some of them beyond what exp can hold."""
    cases: dict[str, list[Block]] = {
        "one block": [([2.0, 4.0], [10.0, 20.0])],
        "three blocks": [([2.0], [10.0]), ([4.0], [20.0]), ([3.0], [30.0])],
        "blocks of several": [
            ([0.5, -1.0], [3.0, 8.0]),
            ([2.0, 2.0, 1.5], [-4.0, 1.0, 6.0]),
        ],
        "scores near 1000": [
            ([998.0], [10.0]),
            ([1000.0], [20.0]),
            ([999.0], [30.0]),
        ],
        "scores near -1000": [([-1000.0], [4.0]), ([-1001.0], [8.0])],
    }
    for name, blocks in cases.items():
        require_same(answer(_once(blocks)), _whole(blocks), name, near=1e-9)


def _once(blocks: list[Block]) -> Iterator[Block]:
    """Yield each block once; it is gone when the next one arrives."""
    for scores, values in blocks:
        block = list(scores), list(values)
        yield block
        for of_block in block:
            of_block.clear()


def _whole(blocks: list[Block]) -> float:
    """Return what a softmax over all scores at once makes of the values."""
    scores = [score for scores, _ in blocks for score in scores]
    values = [value for _, values in blocks for value in values]
    weights = [exp(score - max(scores)) for score in scores]
    products = [w * v for w, v in zip(weights, values, strict=True)]
    return sum(products) / sum(weights)


def check_ring_meetings(answer: Answer) -> None:
    """Which pieces meet on each rank in each step, and all of them once."""
    cases = [
        (rank, step, k)
        for k in (1, 2, 3, 4)
        for rank in range(k)
        for step in range(k)
    ]
    case_format = "rank {0} of {2}, step {1}"
    for case in cases:
        found = answer(*case)
        require(
            isinstance(found, list),
            f"{case_format.format(*case)}: it returned {found!r}, not a list",
        )
        expected = sorted(_meetings(*case))
        require_same(sorted(found), expected, case_format.format(*case))


def _meetings(rank: int, step: int, k: int) -> list[tuple[int, int, bool]]:
    source = (rank - step) % k
    return [
        (query, key, query == key)
        for query in (rank, 2 * k - 1 - rank)
        for key in (source, 2 * k - 1 - source)
        if key <= query
    ]


def check_ring_or_ulysses(
    answer: Answer, more: Sequence[tuple[int, int, int, float]] = ()
) -> None:
    """Few tokens and many, heads that the devices divide and not."""
    cases = [
        (k, heads, tokens, flops_per_byte)
        for k, heads in ((2, 32), (4, 32), (8, 32), (8, 12), (6, 32), (64, 32))
        for tokens in (500, 2_000, 8_000, 13_000, 40_000)
        for flops_per_byte in (700.0, 8_350.0)
    ]
    cases += more
    case_format = "{0} devices, {1} heads, {2} tokens each, Rβ = {3:.0f}"
    require_reference(answer, _faster, cases, case_format)


def _faster(k: int, heads: int, tokens: int, flops_per_byte: float) -> str:
    # In units of the time in which a device computes one block of scores,
    # per token on a device.
    message = 2 * flops_per_byte
    ring = tokens + (k - 1) * max(tokens, message)
    ulysses = k * tokens + 2 * message * (k - 1) / k
    return "ulysses" if heads % k == 0 and ulysses < ring else "ring"
