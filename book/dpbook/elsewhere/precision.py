"""Three steps in 32 bits and in 64: where they part."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn import functional as F

from dpbook.common.models import lenet
from dpbook.common.plots import COLOURS, Picture
from dpbook.elsewhere.steps import RATE, Batch

DTYPES = (torch.float32, torch.float64)


def parted(
    params: Sequence[Tensor], batches: Sequence[Batch]
) -> list[tuple[int, float]]:
    """Return what three steps in 32 bits have lost, step by step.

    Returns:
        For each step a pair. The first number counts the inputs of the second
        layer's rectifiers that have another sign than in 64 bits. The second
        is the largest distance of a parameter from that in 64 bits, after it.
    """
    runs = {dtype: [p.to(dtype) for p in params] for dtype in DTYPES}
    found = []
    for X, y in batches:
        signs = []
        for dtype in DTYPES:
            signs.append(_second_layer(X.to(dtype), runs[dtype]) > 0)
            runs[dtype] = _stepped(runs[dtype], X.to(dtype), y)
        apart = max(
            float((p.double() - q).abs().max()) for p, q in zip(*runs.values())
        )
        found.append((int((signs[0] != signs[1]).sum()), apart))
    return found


def _second_layer(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return what goes into the rectifiers: (b, 50, 9, 9)."""
    W1, b1, W2, b2 = params[:4]
    return F.conv2d(F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2), W2, b2)


def _stepped(params: Sequence[Tensor], X: Tensor, y: Tensor) -> list[Tensor]:
    params = [p.detach().requires_grad_() for p in params]
    loss = F.cross_entropy(lenet(X, params), y)
    gradients = torch.autograd.grad(loss, params)
    return [(p - RATE * g).detach() for p, g in zip(params, gradients)]


def plot_parted(found: Sequence[tuple[int, float]]) -> Picture:
    """Draw the distance after each step, with the signs that turned in it."""

    def draw(ax: Axes) -> None:
        steps = range(1, len(found) + 1)
        apart = [distance for _, distance in found]
        ax.semilogy(steps, apart, "o-", color=COLOURS[0])
        for step, (turned, distance) in zip(steps, found):
            word = "sign" if turned == 1 else "signs"
            ax.annotate(
                f"{turned} {word}",
                (step, distance),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
            )
        ax.axhline(2.0**-24, color=COLOURS[1], ls="--", lw=1)
        ax.text(1, 2.0**-24 * 1.3, "rounding to 32 bits", color=COLOURS[1])
        ax.set(xlabel="step", ylabel="largest difference of a parameter")
        ax.set(xlim=(0.7, 3.3), ylim=(3e-8, 1e-3), xticks=list(steps))

    return Picture(draw, "the distance of 32 bits from 64, step by step")
