"""Whether two digests are near: equal up to rounding.

A gradient that is zero in exact arithmetic is all rounding, as that of a bias
before batch normalization, or of the bias of attention's keys. It is the sum
of numbers that are as large as those of other gradients. So a difference is
measured by the tensor itself, and by the rounding of the longest of all::

    one       other     longest  difference  allowed
    0.18      0.18      0.18        1e-08    1e-4 x 0.18
    1.5e-08   0.7e-08   0.18        8e-09    16 x 1.2e-07 x 0.18 = 3e-07
    2e-05     1e-05     0.18        1e-05    the same: they differ
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from dpkit.runs.check.digests import Digest

SAME_WITHIN = 1e-4  # relative: sums are taken in another order
_EXACT = torch.finfo(torch.float32).eps
_ROUNDINGS = 16  # of the longest gradient that one which is 0 may have


class Tolerance(NamedTuple):
    """How far apart digests may be."""

    relative: float  # of the longer of both
    of_longest: float  # of the longest of all


def tolerance(rounding: float = _EXACT) -> Tolerance:
    """Return how far apart digests of equal gradients may be.

    Args:
        rounding: The relative rounding of the least exact numbers that they
            are computed from, such as 2**-7 for bfloat16.
    """
    if rounding <= _EXACT:
        return Tolerance(SAME_WITHIN, _ROUNDINGS * _EXACT)
    return Tolerance(4 * rounding, 4 * rounding)


def longest(digests: Mapping[str, Digest]) -> float:
    """Return the length of the longest."""
    return max((one.length for one in digests.values()), default=0.0)


def differing(
    one: Mapping[str, Digest],
    other: Mapping[str, Digest],
    allowed: Tolerance | None = None,
) -> list[str]:
    """Return the names whose digests differ, or that one lacks."""
    allowed = allowed or tolerance()
    floor = allowed.of_longest * max(longest(one), longest(other))
    return [
        name
        for name in one
        if name not in other
        or not are_near(
            one[name], other[name], relative=allowed.relative, floor=floor
        )
    ]


def more_than_rounding(
    digests: Mapping[str, Digest], allowed: Tolerance
) -> list[str]:
    """Return the names of what is not so short that it may be 0."""
    floor = allowed.of_longest * longest(digests)
    return [name for name, one in digests.items() if one.length > floor]


def are_near(
    one: Digest, other: Digest, *, relative: float, floor: float = 0.0
) -> bool:
    """Return whether digests are equal up to rounding.

    Args:
        one: A digest.
        other: Another.
        relative: How far apart they may be, for the longer of both.
        floor: How far apart they may be, whatever their lengths.
    """
    scale = relative * max(one.length, other.length) + floor
    return (
        one.shape == other.shape
        and abs(one.length - other.length) <= scale
        and abs(one.along - other.along) <= scale
    )


def common_factor(
    one: Mapping[str, Digest],
    other: Mapping[str, Digest],
    names: Iterable[str],
    allowed: Tolerance | None = None,
) -> float | None:
    """Return the factor between digests, if it is the same for all names."""
    allowed = allowed or tolerance()
    floor = allowed.of_longest * max(longest(one), longest(other))
    listed = list(names)
    known = [n for n in listed if n in other and one[n].length > floor]
    if not known or any(n not in other for n in listed):
        return None
    most = max(known, key=lambda name: one[name].length)
    factor = other[most].length / one[most].length
    for name in known:
        shape, length, along = one[name]
        scaled = Digest(shape, factor * length, factor * along)
        if not are_near(
            scaled, other[name], relative=allowed.relative, floor=floor
        ):
            return None
    return factor


def near_numbers(one: float, other: float, *, relative: float) -> bool:
    """Return whether two numbers are equal up to rounding."""
    return abs(one - other) <= relative * max(abs(one), abs(other))


def weights_of(
    whole: Mapping[str, Sequence[float]],
    parts: Sequence[Mapping[str, Sequence[float]]],
) -> list[float] | None:
    """Return by what weights parts add up to a whole, if they do.

    Args:
        whole: A name -> components of a gradient.
        parts: The same of each of the gradients that may add up to it.
    """
    names = [n for n in whole if whole[n] and all(p.get(n) for p in parts)]
    if not names:
        return None

    def column(of: Mapping[str, Sequence[float]]) -> list[float]:
        return [number for name in names for number in of[name]]

    columns = [column(part) for part in parts]
    matrix = torch.tensor(columns, dtype=torch.float64, device="cpu").T
    right = torch.tensor(column(whole), dtype=torch.float64, device="cpu")
    if len(right) <= len(parts) or not right.norm():
        return None
    found = torch.linalg.pinv(matrix, rtol=1e-9) @ right
    rest = (matrix @ found - right).norm() / right.norm()
    return found.tolist() if float(rest) < 10 * SAME_WITHIN else None
