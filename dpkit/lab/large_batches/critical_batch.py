"""How the number of steps depends on the batch: a law of two numbers.

With small batches, twice the batch halves the steps; with large ones it
changes nothing. In between the law is a sum of the two::

    steps = least_steps * (1 + critical_batch / batch)

At the critical batch a run takes twice the least steps, and twice the
examples that the smallest batches would need.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpkit.theory.least_squares import fit_two


def steps_needed(
    batch: float, least_steps: float, critical_batch: float
) -> float:
    """Return the steps to a target that a batch of this size takes.

    Args:
        batch: Examples in a step.
        least_steps: The steps that no batch can do without.
        critical_batch: Examples in a step that takes twice as many.

    Example:
        >>> [steps_needed(b, 100, 32) for b in (16, 32, 64)]
        [300.0, 200.0, 150.0]

    Source:
        S. McCandlish, J. Kaplan, D. Amodei, the OpenAI Dota team, An
        empirical model of large-batch training, 2018, arXiv:1812.06162.
    """
    return least_steps * (1 + critical_batch / batch)


def fit(batches: Sequence[int], steps: Sequence[float]) -> tuple[float, float]:
    """Return the least steps and the critical batch that fit best.

    The sum of the squares of the *relative* errors is least: a run of 100
    steps counts as much as one of 10,000. With u = 1 / steps and
    v = 1 / (batch * steps) the law asks for ``least * u + a * v = 1``, where
    ``a = least * critical``: two linear equations in two numbers.

    Args:
        batches: Examples in a step; at least two sizes.
        steps: The steps that each took to the target.

    Raises:
        ValueError: all batches are of one size.

    Example:
        >>> least, critical = fit([16, 64, 256], [300, 150, 112.5])
        >>> round(least, 6), round(critical, 6)
        (100.0, 32.0)
    """
    if len(set(batches)) < 2:
        raise ValueError(
            f"one size of batch cannot tell two numbers (batches: {batches})"
        )
    us = [1 / s for s in steps]
    vs = [1 / (b * s) for b, s in zip(batches, steps, strict=True)]
    least, a = fit_two(us, vs, [1.0] * len(us))
    return least, a / least
