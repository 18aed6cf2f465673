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
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend
from torch.utils._pytree import tree_map_only

from dpkit.sim.kernels.half import widened
from dpkit.sim.operators.operations import aten
from dpkit.sim.operators.random_numbers import default_generator

_CPU_KERNEL = aten._scaled_dot_product_flash_attention_for_cpu.default
_CPU_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
_SEEDS = "rng_state", "philox_seed"  # what operators call the seed


class Given(NamedTuple):
    """What attention is computed from."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None

    @property
    def is_one_kernel(self) -> bool:
        """Whether the CPU has one kernel for it."""
        if self.query.device.type != "cpu":
            return False
        grouped = self.query.shape[1] != self.key.shape[1]
        choice = aten._fused_sdp_choice(
            *self[:-1], scale=self.scale, enable_gqa=grouped
        )
        return bool(choice == SDPBackend.FLASH_ATTENTION.value)


def _forward(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Return what an operator returns: outputs, L, a seed and the like."""
    given = _given(_named(func, args, kwargs))
    returned = _blank(func, args, kwargs)
    if not given.query.numel():  # a rank that has no example, or no head
        return tuple(returned)
    seed = _new_seed(given.query.device) if given.dropout_p else None
    if given.is_one_kernel:
        *tensors, mask = widened(given[:4])
        options = {"attn_mask": mask, "scale": given.scale}
        out, sums = _CPU_KERNEL(*tensors, 0.0, given.is_causal, **options)
    else:
        out, sums = _attend(given, seed)
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
    given = _given(named)
    returned = _blank(func, args, kwargs)
    if not given.query.numel():
        return tuple(returned)
    gradient = named["grad_out" if "grad_out" in named else "grad_out_"]
    out = named["out"]
    sums = named["logsumexp"].flatten(2)[..., : given.query.shape[-2]]
    learns_mask = named.get("grad_input_mask", [False] * 4)[3]
    if given.is_one_kernel and not learns_mask:
        *tensors, mask = widened((gradient, *given[:3], out, sums, given.mask))
        options = {"attn_mask": mask, "scale": given.scale}
        three = _CPU_BACKWARD(*tensors, 0.0, given.is_causal, **options)
        found = *three, None
    else:
        found = _gradients(
            given, gradient, out=out, sums=sums, seed=named.get(_SEEDS[1])
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


def _given(named: dict[str, Any]) -> Given:
    """Return what attention is computed from."""
    return Given(
        query=named["query"],
        key=named["key"],
        value=named["value"],
        mask=named.get("attn_bias", named.get("attn_mask")),
        dropout_p=named.get("dropout_p", 0.0),
        is_causal=named.get("is_causal", False),
        scale=named.get("scale"),
    )


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


def _attend(given: Given, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the outputs o, and L, the `logsumexp` of the scores."""
    scores = _scores(given)
    sums = scores.logsumexp(-1)
    weights = _weights(scores, sums)
    if seed is not None:
        weights *= _dropout_factors(weights, given.dropout_p, seed)
    _, _, value = _wide(given)
    return weights @ value, sums


def _gradients(
    given: Given,
    gradient: Tensor,
    *,
    out: Tensor,
    sums: Tensor,
    seed: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of query, key, value and mask."""
    query, key, value = _wide(given)
    gradient = gradient.to(query.dtype)
    out = out.to(query.dtype)
    weights = _weights(_scores(given), sums)
    d_weights = gradient @ value.mT
    after_dropout = weights
    if given.dropout_p:
        assert seed is not None
        kept = _dropout_factors(weights, given.dropout_p, seed)
        after_dropout = weights * kept
        d_weights = d_weights * kept
    rows = (gradient * out).sum(-1, keepdim=True)
    d_scores = weights * (d_weights - rows)
    scale = _scale(given)
    mask = given.mask
    heads = given.key.shape[1]
    return (
        scale * d_scores @ key,
        _of_heads(scale * d_scores.mT @ query, heads),
        _of_heads(after_dropout.mT @ gradient, heads),
        None if mask is None else d_scores.sum_to_size(mask.shape),
    )


def _wide(given: Given) -> list[Tensor]:
    """Return q, k, v with as many heads, in float32 if they have 16 bits."""
    times = given.query.shape[1] // given.key.shape[1]
    widest = torch.promote_types(given.query.dtype, torch.float32)
    repeated = [x.repeat_interleave(times, 1) for x in given[1:3]]
    return [x.to(widest) for x in (given.query, *repeated)]


def _of_heads(x: Tensor, count: int) -> Tensor:
    """Return the sums over the heads of queries that share one of keys."""
    groups: Tensor = x.unflatten(1, (count, -1))
    return groups.sum(2)


def _scale(given: Given) -> float:
    size: int = given.query.shape[-1]
    return size**-0.5 if given.scale is None else given.scale


def _scores(given: Given) -> Tensor:
    query, key, _ = _wide(given)
    scores = _scale(given) * query @ key.mT
    if given.mask is not None:
        scores = scores + given.mask
    if given.is_causal:
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


def _operators() -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for kernel in ("flash", "efficient", "cudnn"):
        name = f"_scaled_dot_product_{kernel}_attention"
        func = getattr(aten, name).default
        backward = getattr(aten, f"{name}_backward").default
        found |= {func: _forward, backward: _backward}
    found |= {_CPU_KERNEL: _forward, _CPU_BACKWARD.default: _backward}
    return {func: partial(run, func) for func, run in found.items()}


# Operator -> what computes it.
FUSED_ATTENTION = _operators()
