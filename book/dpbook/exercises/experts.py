"""Checks of the exercises on experts that ranks share."""

from itertools import permutations

from dpbook.exercises.verdict import (
    Answer,
    require,
    require_reference,
    require_same,
)

Pairs = list[tuple[int, int]]


def check_kept_choices(answer: Answer) -> None:
    """One choice and several, with room and without."""
    cases: dict[str, tuple[list[list[int]], int]] = {
        "room for all": ([[0], [1], [0]], 2),
        "one choice, room for one": ([[0], [1], [0]], 1),
        "two choices, room for two": ([[0, 1], [0, 1], [0, 2], [1, 2]], 2),
        "two choices, room for one": ([[2, 0], [0, 2], [1, 0]], 1),
        "three choices": ([[3, 1, 0], [1, 3, 2], [3, 0, 1], [1, 0, 3]], 2),
    }
    for name, (choices, capacity) in cases.items():
        found = answer(choices, capacity)
        _require_pairs(found, name)
        require_same(
            sorted(tuple(pair) for pair in found),
            sorted(_kept(choices, capacity)),
            name,
        )


def _require_pairs(found: object, name: str) -> None:
    require(
        isinstance(found, list)
        and all(isinstance(p, tuple | list) and len(p) == 2 for p in found),
        f"{name}: it returned {found!r}, not a list of pairs",
    )


def _kept(choices: list[list[int]], capacity: int) -> Pairs:
    asked = [
        (token, expert)
        for of_one_choice in zip(*choices, strict=True)
        for token, expert in enumerate(of_one_choice)
    ]
    return [
        (token, expert)
        for i, (token, expert) in enumerate(asked)
        if [e for _, e in asked[:i]].count(expert) < capacity
    ]


def check_gives_and_takes(answer: Answer) -> None:
    """Two ranks to four, one expert on a rank and more."""
    tables = [
        [[3, 1], [4, 2]],
        [[1, 2, 3, 4], [10, 20, 30, 40]],
        [[5, 0, 0], [0, 6, 1], [2, 2, 2]],
        [[r * 8 + e for e in range(8)] for r in range(4)],
    ]
    cases = [(t, rank) for t in tables for rank in range(len(t))]
    require_reference(answer, _rows, cases, "counts {0}, rank {1}")


def _rows(counts: list[list[int]], rank: int) -> tuple[list[int], list[int]]:
    k = len(counts)
    each = len(counts[0]) // k
    by_rank = [
        [sum(row[each * r : each * (r + 1)]) for r in range(k)]
        for row in counts
    ]
    return by_rank[rank], [row[rank] for row in by_rank]


def check_place_experts(answer: Answer) -> None:
    """Equal loads and unequal ones, in any order."""
    cases = [
        [5, 5],
        [8, 1, 4, 3],
        [1, 2, 3, 4],
        [9, 9, 1, 1],
        [1, 50, 2, 40, 3, 30],
        [7, 7, 6, 6, 1, 9],
    ]
    for loads in cases:
        k = len(loads) // 2
        pairs = answer(list(loads), k)
        name = f"loads {loads}"
        _require_pairs(pairs, name)
        placed = sorted(expert for pair in pairs for expert in pair)
        require(
            len(pairs) == k and placed == list(range(2 * k)),
            f"{name}: {pairs!r} does not place each expert once, two on "
            "each device",
        )
        require_same(_busiest(pairs, loads), _least(loads), f"{name}, busiest")


def _busiest(pairs: Pairs, loads: list[int]) -> int:
    return max(loads[a] + loads[b] for a, b in pairs)


def _least(loads: list[int]) -> int:
    """Try all orders of the experts."""
    return min(
        _busiest(list(zip(order[::2], order[1::2], strict=True)), loads)
        for order in permutations(range(len(loads)))
    )
