"""What the listings of all frameworks share. It needs NumPy alone."""

import pathlib
from collections.abc import Sequence

import numpy as np

NAMES = ["W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4"]
RATE = 0.1
START = pathlib.Path(__file__).with_name("start.npz")


def start(dtype: str = "float64") -> tuple[list, list]:
    """Return LeNet's parameters, and three batches (X, y) of 257 rows.

    X has the shape (257, 1, 28, 28) and holds brightness from 0 to 1; y holds
    the number of the class.
    """
    with np.load(START) as stored:
        params = [stored[name].astype(dtype) for name in NAMES]
        X, y = stored["X"].astype(dtype) / 255, stored["y"].astype("int32")
    return params, list(zip(X, y))


def step_factor(
    old: Sequence, new: Sequence, right: Sequence
) -> tuple[float, float]:
    """Return how many right steps the step from old to new is long.

    The factor c is the one with which old + c · (right − old) comes closest to
    new; the second value is the largest distance that remains.

    Example:
        >>> step_factor([1.0], [0.9], [0.8])
        (0.5, 0.0)
    """
    start, step, right_step = (
        np.concatenate([np.ravel(np.asarray(p, "float64")) for p in params])
        for params in (old, new, right)
    )
    step, right_step = step - start, right_step - start
    factor = step @ right_step / (right_step @ right_step)
    return float(factor), float(np.abs(step - factor * right_step).max())


def apart(replicas: Sequence[Sequence]) -> float:
    """Return how far the parameters of any two replicas are apart."""
    return max(
        float(np.ptp([np.asarray(p) for p in copies], axis=0).max())
        for copies in zip(*replicas)
    )
