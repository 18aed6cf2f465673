"""Attention by the kernel that PyTorch chooses on the CPU.

On a device that PyTorch does not know it would compose attention of products
and a softmax, which rounds in another order.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from dpkit.sim.tensor import plain

aten = torch.ops.aten


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stand in for ``torch.nn.functional.scaled_dot_product_attention``.

    Args:
        query: Shape (…, queries, features).
        key: Shape (…, keys, features).
        value: Shape (…, keys, outputs).
        attn_mask: Added to the scores, or True where a key is looked at.
        dropout_p: The probability of dropping a weight.
        is_causal: Whether a query looks at earlier keys alone.
        scale: What scores are multiplied by; None: 1 / sqrt(features).
        enable_gqa: Whether several query heads share one key head.

    Returns:
        Shape (…, queries, outputs).
    """
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:
        nothing = torch.zeros_like(mask, dtype=query.dtype)
        mask = nothing.masked_fill_(mask.logical_not(), -torch.inf)
    choice = aten._fused_sdp_choice(
        _stand_in(query),
        _stand_in(key),
        _stand_in(value),
        None if mask is None else _stand_in(mask),
        dropout_p,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    if plain(query).device.type == "cuda":  # only on CUDA
        choice = SDPBackend.MATH.value
    learnt_mask = mask is not None and mask.requires_grad
    if choice != SDPBackend.FLASH_ATTENTION.value or learnt_mask:
        composed: Tensor = aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        )[0]  # fmt: skip
        return composed
    missing = 4 - query.dim()  # the kernel wants a batch of heads
    operands = [x[(None,) * missing] for x in (query, key, value)]
    fused: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        *operands, dropout_p, is_causal, attn_mask=mask, scale=scale
    )[0]
    return fused.flatten(0, missing) if missing else fused


def _stand_in(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU to choose a kernel by."""
    backing = plain(tensor)
    if backing.device.type == "cpu":
        return backing
    # A row of numbers, as if it were all of them: only its layout is asked.
    row = torch.empty(tensor.shape[-1:], dtype=tensor.dtype)
    return row.expand(tensor.shape)
