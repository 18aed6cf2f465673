"""Two numbers that agree best with measurements.

The least squares of a·u + b·v against given totals, by the normal equations::

    a Σuu + b Σuv = Σut
    a Σuv + b Σvv = Σvt

A line t = a + b·x has u = 1 and v = x. For the least *relative* errors divide
u, v and the total by the total: the totals are then 1.
"""

from collections.abc import Sequence


def fit_two(
    us: Sequence[float],
    vs: Sequence[float],
    *,
    totals: Sequence[float],
    weights: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Return the a and b with which a·u + b·v comes closest to each total.

    Args:
        us: What a is multiplied by, one number for each measurement.
        vs: What b is multiplied by, as many.
        totals: What was measured, as many.
        weights: How much each squared error counts; by default all the same.

    Raises:
        ZeroDivisionError: the measurements cannot tell the two apart.

    Example:
        >>> fit_two([1, 1, 1], [0, 1, 2], totals=[3, 5, 7])  # 3 + 2x
        (3.0, 2.0)
    """
    if weights is None:
        weights = [1.0] * len(totals)
    rows = list(zip(us, vs, totals, weights, strict=True))
    uu = sum(w * u * u for u, _, _, w in rows)
    uv = sum(w * u * v for u, v, _, w in rows)
    vv = sum(w * v * v for _, v, _, w in rows)
    ut = sum(w * u * t for u, _, t, w in rows)
    vt = sum(w * v * t for _, v, t, w in rows)
    determinant = uu * vv - uv * uv
    a = (ut * vv - vt * uv) / determinant
    b = (vt * uu - ut * uv) / determinant
    return a, b
