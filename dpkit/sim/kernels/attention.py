"""Attention: the clock and the memory of CUDA's kernels, the CPU's values.

``scaled_dot_product_attention`` becomes the operator that CUDA would take
(``attention_choice``), so that the gradients and DTensor's rules are those of
this operator::

    on CUDA      operator
    flash        _scaled_dot_product_flash_attention
    efficient    _scaled_dot_product_efficient_attention
    cudnn        _scaled_dot_product_cudnn_attention
    composed     _scaled_dot_product_flash_attention_for_cpu if the CPU has
                 one kernel for it, as in float64; else products and a softmax

What the operators compute is in ``attention_values``.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware.fused_attention import capability
from dpkit.sim.kernels.attention_choice import (
    AttentionCall,
    is_one_kernel_on_cpu,
    kernel_on_cuda,
)
from dpkit.sim.operators.operations import aten
from dpkit.sim.tensors.behaviour import plain

_CPU_KERNEL = aten._scaled_dot_product_flash_attention_for_cpu.default
# The kernel that CUDA takes -> its operator.
_ON_CUDA = {
    "flash": aten._scaled_dot_product_flash_attention,
    "efficient": aten._scaled_dot_product_efficient_attention,
    "cudnn": aten._scaled_dot_product_cudnn_attention,
}


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
        query: Of shape (…, heads, queries, width).
        key: Of shape (…, heads, keys, width).
        value: Of shape (…, heads, keys, width of the output).
        attn_mask: What is added to the scores, or True where a query sees a
            key; its shape is that of the scores, (…, heads, queries, keys).
        dropout_p: The part of the weights that is set to 0.
        is_causal: Whether a query sees no later keys.
        scale: The factor of the scores. None: 1 / √width.
        enable_gqa: Whether several heads of queries share one of keys.

    Raises:
        RuntimeError: PyTorch's settings allow no kernel that takes these.
    """
    _check((query, key, value), attn_mask, dropout_p, is_causal)
    mask = _additive_mask(attn_mask, query)
    call = AttentionCall(
        query,
        key,
        value,
        mask=mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        grouped=enable_gqa,
    )
    card = simulation.clock.cluster.accelerator
    if not card.synchronous:  # a GPU
        kernel = kernel_on_cuda(call, capability(card))
        if kernel is not None:
            return _on_cuda(kernel, call)
        if not torch.backends.cuda.math_sdp_enabled():
            raise RuntimeError("No available kernel. Aborting execution.")
    if _goes_to_cpu_kernel(call):
        return _on_cpu(call)
    return _composed(call)


def _check(
    operands: Sequence[Tensor],
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> None:
    """Refuse what PyTorch refuses on all devices."""
    if is_causal and mask is not None:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be "
            "set when is_causal=True"
        )
    dtypes = [x.dtype for x in operands]
    if len(set(dtypes)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got "
            f"{', '.join(map(str, dtypes))}"
        )
    dims = [x.dim() for x in operands]
    if min(dims) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional, "
            f"but got {', '.join(map(str, dims))} dimensions"
        )
    possible = torch.bool, torch.float32, dtypes[0]
    if mask is not None and mask.dtype not in possible:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query "
            f"dtype, but got {mask.dtype} and query: {dtypes[0]}"
        )
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(
            "dropout probability has to be between 0 and 1, but got "
            f"{dropout_p:g}"
        )


def _check_dtype_of_mask(mask: Tensor, query: Tensor) -> None:
    """Refuse what kernels of CUDA refuse."""
    if mask.dtype != query.dtype:
        raise RuntimeError(
            "invalid dtype for bias - should match query's dtype (attn_mask: "
            f"{mask.dtype}, query: {query.dtype})"
        )


def _additive_mask(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """Return a mask as what is added to the scores: 0 or -infinity."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    nothing = torch.zeros_like(mask, dtype=query.dtype)
    return nothing.masked_fill_(mask.logical_not(), -torch.inf)


def _on_cuda(kernel: str, call: AttentionCall) -> Tensor:
    """Call the operator of one of CUDA's kernels."""
    query, key, value, mask = call[:4]
    settings: tuple[Any, ...] = call.dropout_p, call.is_causal
    if kernel != "flash":  # which takes no mask
        learns = call.trains
        if mask is not None:
            _check_dtype_of_mask(mask, query)
            learns = learns or mask.requires_grad
            mask = mask.expand(*query.shape[:-1], key.shape[-2])
        settings = mask, learns, *settings
    run = _ON_CUDA[kernel]
    return cast(Tensor, run(query, key, value, *settings, scale=call.scale)[0])


def _goes_to_cpu_kernel(call: AttentionCall) -> bool:
    """Return whether the CPU's kernel computes it, and tensors come there."""
    mask = call.mask
    if any(x is not None and not _may_call_kernel(x) for x in call[:4]):
        return False
    if mask is not None and mask.requires_grad:
        return False
    like = call._replace(
        query=_on_cpu_like(call.query),
        key=_on_cpu_like(call.key),
        value=_on_cpu_like(call.value),
        mask=None if mask is None else _on_cpu_like(mask),
    )
    return is_one_kernel_on_cpu(like)


def _may_call_kernel(x: Tensor) -> bool:
    """Return whether a tensor can come to the CPU's kernel.

    DTensors have no rule for it, unless a program adds a handler, as
    ``dpkit.sequence.use_cpu_kernel_in_ring`` does.
    """
    if plain(x) is not x:
        return True
    dispatcher = getattr(type(x), "_op_dispatcher", None)
    handlers = getattr(dispatcher, "_custom_op_handlers", {})
    return _CPU_KERNEL in handlers


def _on_cpu_like(tensor: Tensor) -> Tensor:
    """Return a tensor of this layout on the CPU, to choose a kernel by."""
    backing = plain(tensor)
    if backing.device.type == "cpu":
        return backing
    # A row of values, as if it were all of them: only its layout is asked.
    row = torch.empty(tensor.shape[-1:], dtype=tensor.dtype)
    return row.expand(tensor.shape)


def _on_cpu(call: AttentionCall) -> Tensor:
    """Call the operator of the CPU's kernel."""
    missing = 4 - call.query.dim()  # the kernel wants a batch of heads
    out: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        *[x[(None,) * missing] for x in call[:3]],
        call.dropout_p,
        call.is_causal,
        attn_mask=call.mask,
        scale=call.scale,
    )[0]
    return out.flatten(0, missing) if missing else out


def _composed(call: AttentionCall) -> Tensor:
    """Compute attention by products and a softmax, an operation each."""
    query, key, value, mask = call[:4]
    is_causal = call.is_causal
    if is_causal and plain(query) is query:  # a DTensor takes DTensors
        square = query.shape[-2], key.shape[-2]
        mask = query.new_full(square, -torch.inf).triu(1)
        is_causal = False
    math = aten._scaled_dot_product_attention_math
    settings = mask, call.dropout_p, is_causal
    options = {"scale": call.scale, "enable_gqa": call.grouped}
    return cast(Tensor, math(query, key, value, *settings, **options)[0])
