"""What the operators of attention compute, on plain tensors.

Where the CPU has one kernel for a call, that kernel computes it, to the bit as
on the CPU, except that it takes float16 in float32, as in ``half``. It has no
dropout, and cannot read tensors that lie on a GPU. There attention is computed
as in FlashAttention, but with all scores at once::

    q, k, v, o    queries, keys, values, outputs: (b, heads, length, size)
    s             scale · q kᵀ + mask                 one for each key
    L             log Σ exp(s)                        one for each query
    p             exp(s − L)                          the weights
    m             1 / (1 − rate) where a weight is kept, 0 where it is dropped

    forward       o = (p m) v
    backward      dv = (p m)ᵀ do
                  dp = (do vᵀ) m
                  ds = p (dp − Σ do o)                the sum goes over a row
                  dq = scale · ds k,   dk = scale · dsᵀ q;   of the mask: ds

As on CUDA, m is drawn from a seed, which the operator returns, and backward
draws the same m again. The seed is drawn from the device's generator. So from
one seed of that generator other weights are dropped than the CPU drops.

Source:
    Dao, "FlashAttention-2", 2023, algorithms 1 and 2.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from dpkit.sim.kernels.attention_choice import (
    AttentionCall,
    is_one_kernel_on_cpu,
)
from dpkit.sim.kernels.half import widened
from dpkit.sim.operators.operations import aten
from dpkit.sim.operators.random_numbers import default_generator

_CPU_KERNEL = aten._scaled_dot_product_flash_attention_for_cpu.default
_CPU_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
_SEEDS = "rng_state", "philox_seed"  # what operators call the seed


def _forward(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Return what an operator returns: outputs, L, a seed and the like."""
    call = _call(_named(func, args, kwargs))
    returned = _blank(func, args, kwargs)
    if not call.query.numel():  # a rank that has no example, or no head
        return tuple(returned)
    seed = _new_seed(call.query.device) if call.dropout_p else None
    if _is_one_kernel(call):
        *tensors, mask = widened(call[:4])
        options = {"attn_mask": mask, "scale": call.scale}
        out, sums = _CPU_KERNEL(*tensors, 0.0, call.is_causal, **options)
    else:
        out, sums = _attend(call, seed)
    returned[0] = _laid_out(out, returned[0])
    if func is _CPU_KERNEL:
        # The CPU's sums have float64 too; torch 2.11 announces float32.
        returned[1] = returned[1].to(sums.dtype)
    rows = returned[1].flatten(2)  # (b, heads, length), or more for padding
    if rows.numel():
        rows[..., : sums.shape[-1]] = sums
    if seed is not None:
        names = [part.name for part in func._schema.returns]
        position = next(i for i, name in enumerate(names) if name in _SEEDS)
        returned[position].copy_(seed)
    return tuple(returned)


def _backward(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Return the gradients of queries, keys, values and maybe a mask."""
    named = _named(func, args, kwargs)
    call = _call(named)
    returned = _blank(func, args, kwargs)
    if not call.query.numel():
        return tuple(returned)
    gradient = named["grad_out" if "grad_out" in named else "grad_out_"]
    out = named["out"]
    sums = named["logsumexp"].flatten(2)[..., : call.query.shape[-2]]
    learns_mask = named.get("grad_input_mask", [False] * 4)[3]
    if _is_one_kernel(call) and not learns_mask:
        *tensors, mask = widened((gradient, *call[:3], out, sums, call.mask))
        options = {"attn_mask": mask, "scale": call.scale}
        three = _CPU_BACKWARD(*tensors, 0.0, call.is_causal, **options)
        found = *three, None
    else:
        found = _gradients(
            call, gradient, out=out, sums=sums, seed=named.get(_SEEDS[1])
        )
    return tuple(
        None if like is None else _laid_out(x, like)
        for x, like in zip(found, returned)
    )


def _named(func: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by their names; defaults are left out."""
    names = [argument.name for argument in func._schema.arguments]
    named: dict[str, Any] = dict(zip(names, args)) | kwargs
    return named


def _call(named: dict[str, Any]) -> AttentionCall:
    """Return what attention is computed from."""
    query = named["query"]
    key = named["key"]
    return AttentionCall(
        query,
        key,
        named["value"],
        mask=named.get("attn_bias", named.get("attn_mask")),
        dropout_p=named.get("dropout_p", 0.0),
        is_causal=named.get("is_causal", False),
        scale=named.get("scale"),
        grouped=query.shape[1] != key.shape[1],
    )


def _is_one_kernel(call: AttentionCall) -> bool:
    """Return whether the CPU's kernel computes it: it reads its memory."""
    return call.query.device.type == "cpu" and is_one_kernel_on_cpu(call)


def _blank(func: OpOverload, args: Any, kwargs: Any) -> list[Any]:
    """Return what an operator returns on CUDA, without values in it."""
    args_on_meta, kwargs_on_meta = tree_map_only(
        Tensor, _without_values, (args, kwargs)
    )
    device = next(x.device for x in args if isinstance(x, Tensor))
    zeros = partial(torch.zeros_like, device=device)
    found = func(*args_on_meta, **kwargs_on_meta)
    return list(tree_map_only(Tensor, zeros, found))


def _without_values(x: Tensor) -> Tensor:
    return torch.empty_strided(
        x.shape, x.stride(), dtype=x.dtype, device="meta"
    )


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """Return a tensor in the dtype and with the strides of another."""
    if x.dtype == like.dtype and x.stride() == like.stride():
        return x
    return like.copy_(x)


# -- with all scores at once


def _attend(call: AttentionCall, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the outputs o, and L, the `logsumexp` of the scores."""
    scores = _scores(call)
    sums = scores.logsumexp(-1)
    weights = _weights(scores, sums)
    if seed is not None:
        weights *= _dropout_factors(weights, call.dropout_p, seed)
    _, _, value = _wide(call)
    return weights @ value, sums


def _gradients(
    call: AttentionCall,
    gradient: Tensor,
    *,
    out: Tensor,
    sums: Tensor,
    seed: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of query, key, value and mask."""
    query, key, value = _wide(call)
    gradient = gradient.to(query.dtype)
    out = out.to(query.dtype)
    weights = _weights(_scores(call), sums)
    d_weights = gradient @ value.mT
    after_dropout = weights
    if call.dropout_p:
        assert seed is not None
        kept = _dropout_factors(weights, call.dropout_p, seed)
        after_dropout = weights * kept
        d_weights = d_weights * kept
    rows = (gradient * out).sum(-1, keepdim=True)
    d_scores = weights * (d_weights - rows)
    scale = _scale(call)
    mask = call.mask
    heads = call.key.shape[1]
    return (
        scale * d_scores @ key,
        _of_heads(scale * d_scores.mT @ query, heads),
        _of_heads(after_dropout.mT @ gradient, heads),
        None if mask is None else d_scores.sum_to_size(mask.shape),
    )


def _wide(call: AttentionCall) -> list[Tensor]:
    """Return q, k, v with as many heads, in float32 if they have 16 bits."""
    times = call.query.shape[1] // call.key.shape[1]
    widest = torch.promote_types(call.query.dtype, torch.float32)
    repeated = [x.repeat_interleave(times, 1) for x in call[1:3]]
    return [x.to(widest) for x in (call.query, *repeated)]


def _of_heads(x: Tensor, count: int) -> Tensor:
    """Return the sums over the heads of queries that share one of keys."""
    groups: Tensor = x.unflatten(1, (count, -1))
    return groups.sum(2)


def _scale(call: AttentionCall) -> float:
    size: int = call.query.shape[-1]
    return size**-0.5 if call.scale is None else call.scale


def _scores(call: AttentionCall) -> Tensor:
    query, key, _ = _wide(call)
    scores = _scale(call) * query @ key.mT
    if call.mask is not None:
        scores = scores + call.mask
    if call.is_causal:
        seen = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores


def _weights(scores: Tensor, sums: Tensor) -> Tensor:
    """Return the weights p; for a query that sees no key they are zero."""
    weights = (scores - sums[..., None]).exp()
    return weights.masked_fill_(scores == -torch.inf, 0)


def _new_seed(device: torch.device) -> Tensor:
    """Return a seed that the generator of a device draws."""
    seed = torch.empty((), dtype=torch.int64, device=device)
    return seed.random_(generator=default_generator())


def _dropout_factors(
    weights: Tensor, dropout_p: float, seed: Tensor
) -> Tensor:
    """Return m, the factors of dropout: 0 everywhere at a rate of 1."""
    generator = torch.Generator(weights.device)
    generator.manual_seed(int(seed.flatten()[0]))
    kept = torch.empty_like(weights)
    kept.bernoulli_(1 - dropout_p, generator=generator)
    return kept / (1 - dropout_p) if dropout_p < 1 else kept


_FORWARD = (
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    _CPU_KERNEL,
)
_BACKWARD = (
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
    _CPU_BACKWARD.default,
)
# Operator -> what computes it.
FUSED_ATTENTION = {
    **{func: partial(_forward, func) for func in _FORWARD},
    **{func: partial(_backward, func) for func in _BACKWARD},
}
