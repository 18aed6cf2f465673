"""The arithmetic of an operation: how many floating-point operations it takes.

They are counted by the formulas of PyTorch's own flop counter. One of its
formulas is mended here: that of the backward of a convolution, which leaves
out that its channels may be in groups.
"""

from typing import Any

from torch.utils.flop_counter import conv_flop_count, flop_registry

from dpkit.sim.operations import OpCall, base_name


def num_flops(call: OpCall, out: Any) -> int:
    """Return the additions and multiplications of an operation.

    ``out`` is what has come out of it.
    """
    if base_name(call.func) == "convolution_backward":
        return _convolution_backward(call)
    formula = flop_registry.get(call.func._overloadpacket)
    if formula is None:
        return 0
    return int(formula(*call.args, **call.kwargs, out_val=out))


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
