"""How the learning rate begins: three ways, each a function of the step.

All end at the same rate. With ``low`` = 1, ``high`` = 4 and 6 steps to warm
up::

    step        0    1    2    3    4    5    6    7
    none        4    4    4    4    4    4    4    4
    constant    1    1    1    1    1    1    4    4
    gradual     1   1.5   2   2.5   3   3.5   4    4

Source:
    P. Goyal et al., Accurate, large minibatch SGD: training ImageNet in
    1 hour, 2017, arXiv:1706.02677, section 2.2.
"""

from collections.abc import Callable

Warmup = Callable[[int, int, float, float], float]


def no_warmup(step: int, num_steps: int, low: float, high: float) -> float:
    """Begin at the rate of the whole run."""
    return high


def constant_warmup(
    step: int, num_steps: int, low: float, high: float
) -> float:
    """Keep a low rate for some steps, then jump."""
    return low if step < num_steps else high


def gradual_warmup(
    step: int, num_steps: int, low: float, high: float
) -> float:
    """Raise the rate by the same amount each step."""
    return low + (high - low) * min(step / num_steps, 1.0)


WARMUPS: dict[str, Warmup] = {
    "none": no_warmup,
    "constant": constant_warmup,
    "gradual": gradual_warmup,
}
