"""The arithmetic of an operation: how many floating-point operations it takes.

They are as many as PyTorch's own flop counter says, except

- for the backward of a convolution, where its formula leaves out that channels
  may be in groups;
- for attention by a fused kernel, where it counts all scores, also those that
  are masked and not computed;
- for complex numbers, and for products that it has no formula for.

Its formulas are asked for what is not PyTorch's own, and for what a CPU has no
kernel for. They are no part of every run, because they import Triton.

Operations that PyTorch makes of several others are counted by these: in
``record``, ``_OF_PRODUCTS``, and in ``kernels.fast_path``. What has
arithmetic that nobody charges is in ``uncharged_arithmetic``.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.hardware.causal_attention import block_side, num_scores
from dpkit.sim.operators.operations import OpCall, arguments, base_name
from dpkit.sim.operators.uncharged_arithmetic import WARNED_OF, no_flops

# Product of two matrices, or of lists of them -> the place of the first.
PRODUCTS = {
    "_addmm_activation": 1,
    "_grouped_mm": 0,
    "_int_mm": 0,
    "_scaled_grouped_mm": 0,
    "_scaled_grouped_mm_v2": 0,
    "_scaled_mm": 0,
    "_scaled_mm_v2": 0,
    "addbmm": 1,
    "addbmm_": 1,
    "addmm": 1,
    "addmm_": 1,
    "baddbmm": 1,
    "baddbmm_": 1,
    "bmm": 0,
    "mm": 0,
}
# Operator of attention -> the kernel that it stands for. What the CPU has one
# kernel for, and CUDA none, is charged on a GPU as the products of all scores.
ATTENTION = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_flash_attention_for_cpu": "cpu",
}
# What runs on GPUs alone, or for shapes: counted by PyTorch's formulas.
BY_PYTORCH = [
    "_efficient_attention_backward",
    "_efficient_attention_forward",
    "_flash_attention_backward",
    "_flash_attention_forward",
    "cudnn_convolution",
]


# How the arithmetic of an operation is counted: from the call, what has come
# out of it, and whether a CPU is simulated, whose kernels are its own.
Counting = Callable[[OpCall, Any, bool], int]


def counting(func: OpOverload) -> Counting | None:
    """Return how an operator's arithmetic is counted; None: it has none."""
    name = base_name(func)
    if kind := attention_kind(func):
        kernel, _, direction = kind.partition(" ")
        return partial(_attention, kernel, bool(direction))
    if name in PRODUCTS:
        return partial(_product, PRODUCTS[name])
    if name == "_foreach_mm":
        return _products
    if name in _COUNTED_CONVOLUTIONS:
        return _COUNTED_CONVOLUTIONS[name]
    if name in WARNED_OF:
        return partial(no_flops, name)
    if func.namespace == "aten" and name not in BY_PYTORCH:
        return None
    # Here, not above: it imports Triton, which takes a tenth of a second.
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    return None if formula is None else partial(_by_pytorch, formula)


def _by_pytorch(
    formula: Callable[..., int], call: OpCall, out: Any, _: bool
) -> int:
    return int(formula(*call.args, **call.kwargs, out_val=out))


def _convolution(call: OpCall, out: Tensor, _: bool) -> int:
    x = call.args[0]
    w = call.args[1]
    transposed = call.args[6]
    return _by_each_weight(x, w, out, transposed=transposed)


def _by_each_weight(
    x: Tensor, w: Tensor, y: Tensor, *, transposed: bool
) -> int:
    """Return the operations of a convolution from x to y, with weight w."""
    # Each weight is multiplied, and added, at each place of an output; where
    # it is transposed, at each place of an input.
    places = (x if transposed else y).shape[2:]
    return 2 * len(x) * prod(places) * w.numel()


def _convolution_backward(call: OpCall, *_: Any) -> int:
    """Return the operations of the gradients, each as many as forward."""
    # Three numbers stand in a triple if w is multiplied by x to make y. The
    # triples are the same where w and dy make dx, and where dy and x make dw.
    #
    # 64 channels to 64, kernels of 3×3, images of 56×56, one row:
    #
    #     groups   forward = dx = dw        in backward PyTorch counts
    #        1     2·56²·64·64·9 = 231 M        2 times forward
    #       32     2·56²·64·2·9 = 7.2 M        33 times forward
    dy, x, w = call.args[:3]
    transposed = call.args[7]
    wanted = call.args[-1]
    forward = _by_each_weight(x, w, dy, transposed=transposed)
    gradients = sum(wanted[:2])  # dx and dw; db takes next to nothing
    return forward * int(gradients)


def attention_kind(func: OpOverload) -> str:
    """Return which kernel of attention it is, as presets call it, or ""."""
    # _scaled_dot_product_flash_attention             "flash"
    # _scaled_dot_product_flash_attention_backward    "flash backward"
    # add                                             ""
    name = base_name(func)
    kernel = ATTENTION.get(name.removesuffix("_backward"), "")
    return f"{kernel} backward" if name not in ATTENTION and kernel else kernel


def _attention(
    kernel: str, backward: bool, call: OpCall, _: Any, on_cpu: bool
) -> int:
    """Return the operations of fused attention, for scores it computes."""
    # q, k, v   queries, keys and values, of the form (b, heads, s, size)
    # S, P, O   the scores q kᵀ, the weights softmax(S), the result P v
    #
    # Each product adds up the size of q and k, or that of v, for a score:
    #
    #     forward     S, O                         size of q + v
    #     backward    S again, dP, dv, dq, dk    3 · q + 2 · v
    q, k, v = call.args[1:4] if backward else call.args[:3]
    scores = q.shape[-2] * k.shape[-2]
    names = [argument.name for argument in call.func._schema.arguments]
    (is_causal,) = arguments(call, [names.index("is_causal")])
    if on_cpu:
        kernel = "cpu"
    elif kernel == "cpu":  # CUDA composes it, and computes all scores
        is_causal = False
    if is_causal:
        side = block_side(kernel, backward, q.shape[-1])
        scores = num_scores(q.shape[-2], k.shape[-2], side=side)
    terms = q.shape[-1] + v.shape[-1]
    if backward:
        terms = 3 * q.shape[-1] + 2 * v.shape[-1]
    flops: int = 2 * prod(q.shape[:2]) * scores * terms
    return flops


def _product(first: int, call: OpCall, *_: Any) -> int:
    """Return the operations of a product, also of groups of matrices."""
    # a          b          product                              flops
    # (m, k)     (k, n)     one                                  2mkn
    # (g, m, k)  (g, k, n)  one for each of g                    2gmkn
    # (m, k)     (g, k, n)  each row of a by one matrix of b     2mkn
    # (g, m, k)  (k, n)     each column of b by one of a         2mkn
    # (m, k)     (k, n)     in g pieces of k: each a product     2mkn
    a, b = call.args[first : first + 2]
    num_pairs = len(a) if a.dim() == b.dim() == 3 else 1
    flops: int = 2 * num_pairs * prod(a.shape[-2:]) * b.shape[-1]
    # (a + bi)(c + di) takes four products of real numbers, and adding it to a
    # sum as many additions. PyTorch makes convolutions of real ones itself.
    return 4 * flops if a.is_complex() else flops


def _products(call: OpCall, *_: Any) -> int:
    """Return what a list of products takes."""
    pairs = zip(*call.args[:2])
    return sum(_product(0, call._replace(args=pair)) for pair in pairs)


_COUNTED_CONVOLUTIONS: dict[str, Counting] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
