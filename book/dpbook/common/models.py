"""Networks small enough to watch: LeNet as a function of its parameters.

Images have shape (b, 1, 28, 28) and scores (b, 10).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Weight shapes of the four layers; a bias follows each.
LENET_SHAPES = ((20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10))
# How many values go into one output of each layer.
LENET_FAN_IN = (9, 500, 800, 128)


def lenet_params(scale: float | None = None, seed: int = 0) -> list[Tensor]:
    """Draw the parameters of :func:`lenet`, weights at random, biases zero.

    ``scale`` is the standard deviation of all weights. None gives each layer
    ``sqrt(2 / fan_in)``, which keeps the size of activations that pass through
    rectifiers.

    Returns:
        ``[W1, b1, W2, b2, W3, b3, W4, b4]``, float32 on the CPU; the weights
        have shapes (20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10).

    Example:
        >>> sum(p.numel() for p in lenet_params(scale=0.01))
        129068

    Source:
        K. He, X. Zhang, S. Ren, J. Sun, Delving deep into rectifiers, ICCV
        2015, for ``sqrt(2 / fan_in)``.
    """
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape, fan_in in zip(LENET_SHAPES, LENET_FAN_IN):
        # The first layer has 9 values in: sqrt(2 / 9) = 0.47.
        std = (2 / fan_in) ** 0.5 if scale is None else scale
        # Convolutions have their outputs first, products of matrices last.
        num_outputs = shape[0] if len(shape) == 4 else shape[1]
        params.append(torch.randn(shape, generator=generator) * std)
        params.append(torch.zeros(num_outputs))
    return params


def lenet(
    X: Tensor,
    params: Sequence[Tensor],
    activation: Callable[[Tensor], Tensor] = F.relu,
) -> Tensor:
    """Return the class scores of images: two convolutions, two dense layers.

    The images lie on the device of the parameters, which are those of
    :func:`lenet_params`. The activation follows all layers but the last.

    Example:
        >>> lenet(torch.zeros(7, 1, 28, 28), lenet_params()).shape
        torch.Size([7, 10])

    Source:
        After Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based
        learning applied to document recognition, Proc. IEEE 86(11), 1998.
    """
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = F.avg_pool2d(activation(F.conv2d(X, W1, b1)), 2)  # (b, 20, 13, 13)
    h = F.avg_pool2d(activation(F.conv2d(h, W2, b2)), 2)  # (b, 50, 4, 4)
    h = activation(h.flatten(start_dim=1) @ W3 + b3)  # (b, 128)
    return h @ W4 + b4


class LeNet(nn.Module):
    """:func:`lenet` as a module."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.params = nn.ParameterList(lenet_params(seed=seed))

    def forward(self, X: Tensor) -> Tensor:
        """Return the class scores of images."""
        return lenet(X, list(self.params))
