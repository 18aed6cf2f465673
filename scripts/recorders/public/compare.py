"""Compare what the steps of a script leave, on two machines."""

import json
from pathlib import Path
from typing import Any

Sums = tuple[list[int], float, float]  # shape, sum and norm of a parameter


def read_sums(path: Path) -> dict[int, list[list[Sums]]]:
    """Return, by rank, the sums after each step."""
    files = path.parent.glob(f"{path.name}.*")
    return {
        int(file.suffix[1:]): [
            json.loads(line) for line in file.read_text().splitlines()
        ]
        for file in files
    }


def largest_difference(ours: Path, theirs: Path) -> dict[str, Any]:
    """Return how many steps and parameters two runs have, and how far off.

    The difference of a sum or of a norm is relative to the norm. Where the
    shapes differ it is infinite.
    """
    a, b = read_sums(ours), read_sums(theirs)
    pairs = [
        (xs, ys)
        for rank in sorted({*a} & {*b})
        for xs, ys in zip(a[rank], b[rank])
    ]
    if not pairs:
        return {"steps": 0, "parameters": 0, "difference": None}
    return {
        "steps": len(pairs) // len(a),
        "parameters": len(pairs[0][1]),
        "difference": max(list_difference(xs, ys) for xs, ys in pairs),
    }


def list_difference(xs: list[Sums], ys: list[Sums]) -> float:
    """Return the largest difference of the parameters of a step."""
    if len(xs) != len(ys):
        return float("inf")
    return max(map(difference, xs, ys), default=0.0)


def difference(x: Sums, y: Sums) -> float:
    """Return the larger of the two relative differences."""
    if x[0] != y[0]:
        return float("inf")
    scale = max(abs(y[2]), 1e-30)
    found = max(abs(x[1] - y[1]), abs(x[2] - y[2])) / scale
    return found if found == found else float("inf")  # not a number
