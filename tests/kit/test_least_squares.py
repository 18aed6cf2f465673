"""Least squares of two numbers."""

import numpy as np
import pytest

from dpkit.least_squares import fit_two


def test_it_agrees_with_numpy():
    chance = np.random.default_rng(0)
    for count in (2, 3, 50):
        us, vs, totals = chance.normal(size=(3, count))
        weights = chance.uniform(0.5, 2, size=count)
        scale = np.sqrt(weights)
        rows = np.stack([us, vs], axis=1) * scale[:, None]
        wanted = np.linalg.lstsq(rows, totals * scale, rcond=None)[0]
        assert fit_two(
            us, vs, totals=totals, weights=weights
        ) == pytest.approx(wanted)


def test_measurements_that_cannot_tell_two_numbers_apart():
    with pytest.raises(ZeroDivisionError):
        fit_two([1, 2, 3], [2, 4, 6], totals=[1, 1, 1])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        fit_two([1, 1], [1], totals=[1, 1])
