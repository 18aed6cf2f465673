"""Attention of a block of queries on a block of keys, and its gradients.

A ring needs more from a block than ``scaled_dot_product_attention`` returns:
forward the maximum and the sum of the softmax, backward the gradients for
outputs that other blocks have a part in. With queries q, keys k, values v,
outputs o and their gradient do::

    s    q kᵀ / √size             the scores
    L    log Σ exp(s)             over the keys of all blocks
    p    exp(s − L)               the weights of this block

    backward    dv = pᵀ do        ds = p (do vᵀ − Σ do o)
                dq = ds k / √size         dk = dsᵀ q / √size

Source:
    T. Dao, FlashAttention-2, 2023, arXiv:2307.08691, algorithms 1 and 2.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from dpkit.sequence.running_softmax import PartialAttention, partial_attention

_flash = torch.ops.aten._scaled_dot_product_flash_attention
_for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
_for_cpu_backward = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
)
_SIXTEEN_BITS = torch.float16, torch.bfloat16
BlockGradients = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values


class SeenQueries(NamedTuple):
    """What backward knows of queries, once they have met all keys.

    Args:
        query: Of shape (b, heads, queries, size).
        output: Their attention over the keys of all blocks, of that shape.
        gradient: The gradient of the output, of that shape.
        logsumexp: L, of shape (b, heads, queries, 1).
    """

    query: Tensor
    output: Tensor
    gradient: Tensor
    logsumexp: Tensor


class BlockKernel(NamedTuple):
    """How a block of queries meets a block of keys.

    Args:
        forward: From queries, keys and values, each of shape (b, heads,
            positions, size), and whether the mask is causal, which it is
            where queries and keys are of the same positions.
        backward: From the queries with what is known of them, keys, values
            and ``causal`` to the gradients of queries, keys and values.
    """

    forward: Callable[[Tensor, Tensor, Tensor, bool], PartialAttention]
    backward: Callable[[SeenQueries, Tensor, Tensor, bool], BlockGradients]


def wide(x: Tensor) -> Tensor:
    """Return a tensor of 16 bits in float32, and any other as it is.

    What is added up over blocks, in either direction, is kept so.
    """
    return x.float() if x.dtype in _SIXTEEN_BITS else x


# -- by products, which have all scores of a block in memory


def _scores(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    scores: Tensor = query @ key.mT * query.shape[-1] ** -0.5
    if causal:
        later = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -inf)
    return scores


def attend_by_products(
    query: Tensor, key: Tensor, value: Tensor, causal: bool
) -> PartialAttention:
    """Compute the scores of a block, and what they make of its values."""
    scores = _scores(wide(query), wide(key), causal)
    return partial_attention(scores, wide(value))


def gradients_by_products(
    seen: SeenQueries, key: Tensor, value: Tensor, causal: bool
) -> BlockGradients:
    """Compute the scores of a block again, and from them the gradients."""
    query, output, gradient, logsumexp = map(wide, seen)
    key, value = wide(key), wide(value)
    weights = (_scores(query, key, causal) - logsumexp).exp()
    rows = (gradient * output).sum(-1, keepdim=True)
    d_scores = weights * (gradient @ value.mT - rows)
    d_scores = d_scores * query.shape[-1] ** -0.5
    return d_scores @ key, d_scores.mT @ query, weights.mT @ gradient


# -- by a fused kernel, which has a few scores at a time


def _flash_takes(query: Tensor) -> bool:
    return query.dtype in _SIXTEEN_BITS and query.device.type != "cpu"


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, causal: bool
) -> PartialAttention:
    """Call the kernel behind ``scaled_dot_product_attention``.

    It returns the output and L, so its maximum may be called L: then the sum
    of exp(s − L) is 1, and the weighted values are the output.
    """
    run = _flash if _flash_takes(query) else _for_cpu
    output, logsumexp, *_ = run(query, key, value, 0.0, causal)
    maximum = wide(logsumexp)[..., None]
    return PartialAttention(wide(output), maximum, torch.ones_like(maximum))


def gradients_fused(
    seen: SeenQueries, key: Tensor, value: Tensor, causal: bool
) -> BlockGradients:
    """Call the backward of the same kernel, with the L of all blocks."""
    query, output, gradient, logsumexp = seen
    given = gradient, query, key, value, output, logsumexp[..., 0].contiguous()
    if _flash_takes(query):
        # The state of random numbers, which only dropout reads.
        state = torch.zeros(2, dtype=torch.uint64, device=query.device)
        lengths = query.shape[-2], key.shape[-2]
        three = _flash_backward(
            *given, None, None, *lengths, 0.0, causal, state, state[0]
        )
    else:
        three = _for_cpu_backward(*given, 0.0, causal)
    d_query, d_key, d_value = map(wide, three)
    return d_query, d_key, d_value


#: Products and exponentials, one operation each: to be read.
BY_PRODUCTS = BlockKernel(attend_by_products, gradients_by_products)
#: FlashAttention on GPUs, in 16 bits; else the CPU's kernel: to be fast.
FUSED = BlockKernel(attend_fused, gradients_fused)
