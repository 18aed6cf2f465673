"""Differences that come from rounding alone: a bound, and not a value.

Two ways of one step add the same values in another order, and each sum is
rounded. How far apart the results end depends on the processor: what is
7e-17 on one is 2e-16 on another. Such a value says nothing about the step.
So the book prints a bound, which is far above the rounding of any processor,
and far below what a mistake would change.
"""

from math import isfinite

import torch

# The difference from 1 to the next number is 2e-16 and 1e-7.
POWERS = {torch.float64: -12, torch.float32: -5}


def below(difference: float, dtype: torch.dtype = torch.float64) -> str:
    """Return a power of ten that a difference is below, from 1e-12 on.

    In float32 the powers begin at 1e-5. The values compared should not be
    far above 1, because rounding grows with them.

    Example:
        >>> below(1.1e-16), below(6.3e-16), below(5.04e-10)
        ('< 1e-12', '< 1e-12', '< 1e-9')
        >>> below(3e-7, torch.float32), below(0.02, torch.float32)
        ('< 1e-5', '< 1e-1')
        >>> below(float("nan"))
        'nan'
    """
    if not isfinite(difference):
        return str(difference)  # it is below nothing
    power = POWERS[dtype]
    while difference >= 10.0**power:
        power += 1
    return f"< 1e{power}"
