"""A softmax over keys that arrive in blocks: the running maximum and sum.

The output of a query is Σ exp(s) v / Σ exp(s), over all keys, where s is the
score of a key and v its value. Both sums can be taken block by block. So that
no exponential overflows, each is divided by exp(m), where m is the largest
score so far. Scores 2, 4 and 3, one in each block, with values 10, 20, 30::

    block   s   v     m    total = Σ exp(s − m)       weighted = Σ exp(s − m) v
    0       2   10    2    1                          10
    1       4   20    4    1 · e⁻² + 1       1.135    10 · e⁻² + 20      21.35
    2       3   30    4    1.135 + e⁻¹       1.503    21.35 + 30 · e⁻¹   32.39

    output   32.39 / 1.503 = 21.55

A larger maximum scales down what was there before; a smaller one scales down
what arrives.

Source:
    M. Milakov, N. Gimelshein, Online normalizer calculation for softmax,
    2018, arXiv:1805.02867, algorithm 3.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class PartialAttention(NamedTuple):
    """What queries have made of the keys and values that they have met.

    Args:
        weighted: Σ exp(s − maximum) v, of shape (…, queries, size).
        maximum: The largest score m of each query, (…, queries, 1).
        total: Σ exp(s − maximum), (…, queries, 1).

    Example:
        One query after the first two blocks of the table above:

        >>> part = PartialAttention(torch.tensor([[21.353]]),
        ...                         maximum=torch.tensor([[4.0]]),
        ...                         total=torch.tensor([[1.135]]))
        >>> part.output, part.logsumexp  # 21.353 / 1.135, 4 + ln 1.135
        (tensor([[18.8132]]), tensor([[4.1266]]))
    """

    weighted: Tensor
    maximum: Tensor
    total: Tensor

    @property
    def output(self) -> Tensor:
        """The attention over these keys, of shape (…, queries, size)."""
        return self.weighted / self.total

    @property
    def logsumexp(self) -> Tensor:
        """The logarithm of Σ exp(s), of shape (…, queries, 1)."""
        return self.maximum + self.total.log()


def partial_attention(scores: Tensor, values: Tensor) -> PartialAttention:
    """Return what queries make of one block of keys and values.

    Args:
        scores: Of shape (…, queries, keys); −∞ where a query does not see a
            key. Each query sees one or more.
        values: Of shape (…, keys, size).

    Example:
        >>> one = partial_attention(torch.tensor([[2.0, 4.0]]),
        ...                         torch.tensor([[10.0], [20.0]]))
        >>> [round(float(x), 3) for x in one]
        [21.353, 4.0, 1.135]
    """
    maximum = scores.amax(-1, keepdim=True)
    weights = (scores - maximum).exp()
    total = weights.sum(-1, keepdim=True)
    return PartialAttention(weights @ values, maximum, total)


def merge_attention(
    a: PartialAttention, b: PartialAttention
) -> PartialAttention:
    """Return what the same queries make of the keys of both.

    Example:
        The third block of the table above:

        >>> a, b = (
        ...     partial_attention(torch.tensor([s]), torch.tensor(v))
        ...     for s, v in [([2.0, 4.0], [[10.0], [20.0]]), ([3.0], [[30.0]])]
        ... )
        >>> round(float(merge_attention(a, b).output), 2)
        21.55
    """
    maximum = torch.maximum(a.maximum, b.maximum)
    of_a = (a.maximum - maximum).exp()
    of_b = (b.maximum - maximum).exp()
    return PartialAttention(
        a.weighted * of_a + b.weighted * of_b,
        maximum,
        a.total * of_a + b.total * of_b,
    )
