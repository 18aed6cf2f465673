"""Writing down what a function does: ``make_fx``, ``torch.func.linearize``.

PyTorch follows the tensors of the classes that it knows, and takes the others
for constants. The derivative that ``linearize`` returns would be one, too.
"""

from torch.fx.experimental import proxy_tensor

from dpkit.sim.tensor import SimTensor


def install() -> None:
    """Let simulated tensors be followed."""
    proxy_tensor.HANDLED_TYPES += (SimTensor,)  # type: ignore[assignment]
