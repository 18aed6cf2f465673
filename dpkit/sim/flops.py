"""The arithmetic of an operation: how many floating-point operations it takes.

They are counted by the formulas of PyTorch's own flop counter, but for:

- the backward of a convolution, where its formula leaves out that channels
  may be in groups;
- some products that it has no formula for.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.utils.flop_counter import conv_flop_count, flop_registry

from dpkit.sim.operations import OpCall, base_name

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


def num_flops(call: OpCall, inputs: Sequence[Tensor], out: Any) -> int:
    """Return the additions and multiplications of an operation.

    ``inputs`` are the tensors it is given, ``out`` is what has come out.
    """
    # (a + bi)(c + di) takes four products of real numbers, and adding it to a
    # sum as many additions.
    return _counted(call, out) * (4 if inputs[0].is_complex() else 1)


def _counted(call: OpCall, out: Any) -> int:
    """Return the same, as if all numbers were real."""
    name = base_name(call.func)
    if name == "convolution_backward":
        return _convolution_backward(call)
    if name in PRODUCTS:
        first = PRODUCTS[name]
        return _product(*call.args[first : first + 2])
    formula = flop_registry.get(call.func._overloadpacket)
    if formula is None:
        return 0
    return int(formula(*call.args, **call.kwargs, out_val=out))


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
