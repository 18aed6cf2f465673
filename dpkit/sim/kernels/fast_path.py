"""PyTorch's fast path for inference, made of the operations inside of it.

In evaluation without gradients ``nn.MultiheadAttention`` and
``nn.TransformerEncoderLayer`` call one operator each. On CUDA it is C++ that
launches the usual kernels one by one, and these functions launch the same::

    attention     fused      linear, fused attention, linear
                  by parts   product, bias and scale, q kᵀ, softmax, P v,
                             linear
    one layer     attention, sum, norm, two products, sum, norm

The values equal those of the CPU's operator up to rounding, by parts to the
last bit.

Source:
    PyTorch, aten/src/ATen/native/transformers: cuda/attention.cu,
    attention.cpp and transformer.cpp.
"""

import torch
from torch import Tensor
from torch.nn import functional

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.operators.operations import aten


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Stand in for ``_native_multi_head_attention``.

    Args:
        query: Of shape (batch, length, width), as are key and value.
        key: What the queries look at.
        value: What is summed up for them.
        width: The width of the model.
        num_heads: Their widths are ``width / num_heads``.
        qkv_weight: Of shape (3 · width, width).
        qkv_bias: Of shape (3 · width,).
        out_weight: Of shape (width, width).
        out_bias: Of shape (width,).
        mask: True where a query does not see a key.
        need_weights: Whether the weights are returned, too; else None.
        average_weights: Whether they are the mean over the heads.
        mask_type: The shape of the mask, by PyTorch's number: 0 for (queries,
            keys), 1 for (batch, keys), 2 for (batch, heads, queries, keys).
    """
    if not query.numel():
        return torch.empty_like(query), None
    # query: (b, s, width); q, k and v: (b, heads, s, width / heads)
    heads = len(query), num_heads
    is_self = query is key and key is value
    is_gpu = not simulation.clock.cluster.accelerator.synchronous
    is_aligned = width // num_heads % 8 == 0
    is_plain = mask is None and not need_weights
    if is_gpu and is_self and is_aligned and is_plain:
        joined = functional.linear(query, qkv_weight, qkv_bias)
        q, k, v = (
            x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
            for x in joined.chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).flatten(2)
        return functional.linear(y, out_weight, out_bias), None
    if is_self:
        joined = query @ qkv_weight.t()
    else:
        pairs = zip((query, key, value), qkv_weight.chunk(3))
        joined = torch.cat([x @ w.t() for x, w in pairs], -1)
    q, k, v = (
        x.flatten(0, 1)
        for x in aten._transform_bias_rescale_qkv(joined, qkv_bias, num_heads)
    )
    scores = torch.bmm(q, k.mT).unflatten(0, heads)
    weights = _softmax(scores, mask, mask_type)
    y = torch.bmm(weights.flatten(0, 1), v).unflatten(0, heads)
    y = functional.linear(y.transpose(1, 2).flatten(2), out_weight, out_bias)
    if not need_weights:
        return y, None
    if average_weights:
        weights = weights.sum(1).div_(num_heads)
    return y, weights


def _softmax(
    scores: Tensor, mask: Tensor | None, mask_type: int | None
) -> Tensor:
    """Return the weights; the mask is true where there is to be none."""
    if mask is None:
        return scores.softmax(-1)
    weights: Tensor = aten._masked_softmax(scores, mask.bool(), 3, mask_type)
    return weights


def encoder_layer(
    x: Tensor,
    width: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    weight_1: Tensor,
    bias_1: Tensor,
    weight_2: Tensor,
    bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Stand in for ``_transformer_encoder_layer_fwd``.

    Args:
        x: Of shape (batch, length, width).
        width: As for :func:`multi_head_attention`, with what follows.
        num_heads: The number of heads.
        qkv_weight: The weight that makes queries, keys and values.
        qkv_bias: Its bias.
        out_weight: The weight after attention.
        out_bias: Its bias.
        use_gelu: Whether GELU is between the two linear layers, or else ReLU.
        norm_first: Whether layers are normalized before, or else after.
        eps: What is added to variances.
        norm_weight_1: Of the normalization with attention, shape (width,).
        norm_bias_1: Its bias.
        norm_weight_2: Of the normalization with the linear layers.
        norm_bias_2: Its bias.
        weight_1: Of the first linear layer, shape (hidden, width).
        bias_1: Its bias.
        weight_2: Of the second one, shape (width, hidden).
        bias_2: Its bias.
        mask: As for :func:`multi_head_attention`.
        mask_type: The same.
    """

    def first_norm(x: Tensor) -> Tensor:
        sizes = (width,)
        return functional.layer_norm(x, sizes, norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        sizes = (width,)
        return functional.layer_norm(x, sizes, norm_weight_2, norm_bias_2, eps)

    y = first_norm(x) if norm_first else x
    y, _ = multi_head_attention(
        query=y,
        key=y,
        value=y,
        width=width,
        num_heads=num_heads,
        qkv_weight=qkv_weight,
        qkv_bias=qkv_bias,
        out_weight=out_weight,
        out_bias=out_bias,
        mask=mask,
        need_weights=False,
        mask_type=mask_type,
    )
    x = y.add_(x)
    if not norm_first:
        x = first_norm(x)
    y = second_norm(x) if norm_first else x
    rows = y.flatten(0, 1)
    rows = aten._addmm_activation(
        bias_1, rows, weight_1.t(), use_gelu=use_gelu
    )
    rows = torch.addmm(bias_2, rows, weight_2.t())
    x = rows.view_as(x).add_(x)
    return x if norm_first else second_norm(x)


def shapes_of_heads(
    qkv: Tensor, bias: Tensor, num_heads: int
) -> tuple[Tensor, ...]:
    """Return q, k and v without values; PyTorch has no rule for them."""
    b, s, width = qkv.shape
    shape = b, num_heads, s, width // (3 * num_heads)
    return tuple(qkv.new_empty(shape) for _ in range(3))
