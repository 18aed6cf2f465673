"""Checks of the exercises on a mesh of ranks."""

from itertools import product
from math import prod

from dpbook.exercises.verdict import (
    Answer,
    require,
    require_reference,
    require_same,
)

SIZES = [(2,), (2, 2), (2, 4), (4, 2), (2, 2, 2), (2, 3, 2), (3, 1, 4)]


def check_ranks_of_group(answer: Answer) -> None:
    """One dimension to three, of two ranks and more."""
    cases = [
        (rank, sizes, dimension)
        for sizes in SIZES
        for dimension in range(len(sizes))
        for rank in range(prod(sizes))
    ]
    case_format = "rank {0} of a mesh {1}, dimension {2}"
    require_reference(answer, _group, cases, case_format)


def _group(rank: int, sizes: tuple[int, ...], dimension: int) -> list[int]:
    coordinates = list(product(*map(range, sizes)))  # the last one runs first
    own = coordinates[rank]
    return [
        other
        for other, theirs in enumerate(coordinates)
        if all(
            a == b
            for i, (a, b) in enumerate(zip(own, theirs, strict=True))
            if i != dimension
        )
    ]


def check_dimensions_across(answer: Answer) -> None:
    """Nodes that divide a dimension, and nodes that do not."""
    cases = [(sizes, n) for sizes in SIZES for n in (1, 2, 4, 8, 12)]
    require_reference(
        answer, _across, cases, "a mesh {0}, {1} ranks in a node"
    )


def _across(sizes: tuple[int, ...], on_node: int) -> list[int]:
    return [
        dimension
        for dimension in range(len(sizes))
        if any(
            len({r // on_node for r in _group(rank, sizes, dimension)}) > 1
            for rank in range(prod(sizes))
        )
    ]


def check_even_cut(answer: Answer) -> None:
    """Heads that count as less than a block, as some, and as many."""
    cases = [
        (4, 1.0, 0.0, 2),
        (4, 1.0, 0.5, 2),
        (4, 1.0, 2.0, 2),
        (8, 1.0, 1.0, 4),
        (9, 0.5, 1.7, 4),
        (12, 2.0, 9.0, 3),
        (5, 1.0, 6.0, 5),
    ]
    for num_blocks, block, head, p in cases:
        cut = list(answer(num_blocks, block, head, p))
        case = f"{num_blocks} blocks of {block} ms, a head of {head} ms"
        name = f"{case}, {p} stages"
        require(
            len(cut) == p and sum(cut) == num_blocks and min(cut) >= 1,
            f"{name}: {cut!r} does not give each stage one block or more, "
            "and all blocks together",
        )
        require_same(
            _slowest(cut, block, head),
            min(
                _slowest(each, block, head)
                for each in product(range(1, num_blocks + 1), repeat=p)
                if sum(each) == num_blocks
            ),
            f"{name}, the slowest stage in ms",
        )


def _slowest(
    cut: tuple[int, ...] | list[int], block: float, head: float
) -> float:
    *others, last = cut
    return max([block * n for n in others] + [block * last + head])
