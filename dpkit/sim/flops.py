"""The arithmetic of an operation: how many floating-point operations it takes.

They are counted by the formulas of PyTorch's own flop counter, except

- the backward of a convolution, where its formula leaves out that channels
  may be in groups;
- attention by a fused kernel, where it counts all scores, also those that are
  masked and not computed;
- some products that it has no formula for.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import conv_flop_count, flop_registry

from dpkit.sim.operations import OpCall, arguments, base_name
from dpkit.theory.hardware.causal_attention import block_of_scores, num_scores

# Product of two matrices, or of lists of them -> the place of the first.
PRODUCTS = {
    "_addmm_activation": 1,
    "_grouped_mm": 0,
    "_int_mm": 0,
    "_scaled_grouped_mm": 0,
    "_scaled_grouped_mm_v2": 0,
    "_scaled_mm_v2": 0,
    "addbmm": 1,
    "addbmm_": 1,
    "addmm_": 1,
    "baddbmm_": 1,
}
FUSED_ATTENTION = "_scaled_dot_product_"  # how the names begin


def num_flops(
    call: OpCall, inputs: Sequence[Tensor], out: Any, on_cpu: bool = False
) -> int:
    """Return the additions and multiplications of an operation.

    Args:
        call: The operation.
        inputs: The tensors in it.
        out: What has come out of it.
        on_cpu: Whether a CPU is simulated, whose kernels are its own.
    """
    # (a + bi)(c + di) takes four products of real numbers, and adding it to a
    # sum as many additions.
    parts = 4 if inputs[0].is_complex() else 1
    name = base_name(call.func)
    if name == "convolution_backward":
        return parts * _convolution_backward(call)
    if name.startswith(FUSED_ATTENTION):
        return _attention(call, on_cpu)
    if name in PRODUCTS:
        first = PRODUCTS[name]
        return parts * _product(*call.args[first : first + 2])
    formula = flop_registry.get(call.func._overloadpacket)
    if formula is None:
        return 0
    return parts * int(formula(*call.args, **call.kwargs, out_val=out))


def _convolution_backward(call: OpCall) -> int:
    """Return what the gradients take: each is as much work as forward."""
    # Three numbers stand in a triple if w is multiplied by x to make y. The
    # triples are the same where w and dy make dx, and where dy and x make dw.
    #
    # 64 channels to 64, kernels of 3×3, images of 56×56, one row:
    #
    #     groups   forward = dx = dw        in backward PyTorch counts
    #        1     2·56²·64·64·9 = 231 M        2 times forward
    #       32     2·56²·64·2·9 = 7.2 M        33 times forward
    dy, x, w = call.args[:3]
    transposed, wanted = call.args[7], call.args[-1]
    forward = conv_flop_count(x.shape, w.shape, dy.shape, transposed)
    gradients = sum(wanted[:2])  # dx and dw; db takes next to nothing
    return int(forward * gradients)


def _attention(call: OpCall, on_cpu: bool) -> int:
    """Return what fused attention takes, for the scores that it computes."""
    # q, k, v   queries, keys and values, of the form (b, heads, s, size)
    # S, P, O   the scores q kᵀ, the weights softmax(S), the result P v
    #
    # Each product adds up the size of q and k, or that of v, for a score:
    #
    #     forward     S, O                         size of q + v
    #     backward    S again, dP, dv, dq, dk    3 · q + 2 · v
    backward = base_name(call.func).endswith("_backward")
    q, k, v = call.args[1:4] if backward else call.args[:3]
    scores = q.shape[-2] * k.shape[-2]
    names = [argument.name for argument in call.func._schema.arguments]
    (is_causal,) = arguments(call, [names.index("is_causal")])
    if is_causal:
        kernel = "cpu" if on_cpu else _attention_on_gpu(call.func, q, k)
        block = block_of_scores(kernel, backward, *q.shape[-2:])
        scores = num_scores(q.shape[-2], k.shape[-2], block)
    terms = q.shape[-1] + v.shape[-1]
    if backward:
        terms = 3 * q.shape[-1] + 2 * v.shape[-1]
    flops: int = 2 * prod(q.shape[:2]) * scores * terms
    return flops


def _attention_on_gpu(func: OpOverload, q: Tensor, k: Tensor) -> str:
    """Return which kernel a GPU runs where the CPU's runs here."""
    # FlashAttention takes 16 bits, and places its mask otherwise if there are
    # more keys than queries: check_flash_causal_non_square_seqlens in
    # PyTorch's transformers/cuda/sdp_utils.cpp, commit 001f694.
    halves = q.dtype in (torch.float16, torch.bfloat16)
    as_many = q.shape[-2] == k.shape[-2]
    is_flash = "efficient" not in base_name(func) and halves and as_many
    return "flash" if is_flash else "efficient"


def _product(a: Tensor, b: Tensor) -> int:
    """Return what a product takes, in which lists of matrices have groups."""
    # a          b          product                              flops
    # (m, k)     (k, n)     one                                  2mkn
    # (g, m, k)  (g, k, n)  one for each of g                    2gmkn
    # (m, k)     (g, k, n)  each row of a by one matrix of b     2mkn
    # (g, m, k)  (k, n)     each column of b by one of a         2mkn
    # (m, k)     (k, n)     in g pieces of k: each a product     2mkn
    num_pairs = len(a) if a.dim() == b.dim() == 3 else 1
    return 2 * num_pairs * prod(a.shape[-2:]) * b.shape[-1]
