"""The checks of the exercises on network partitioning."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.exercises.verdict import Answer, require


def check_accumulate(answer: Answer) -> None:
    """The gradients and the loss of the whole batch."""
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(2, 7, 5, generator=generator, dtype=torch.double)
    for m in (1, 2, 3, 7):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 5))
        net.double()
        expected = F.mse_loss(net(X), y)
        wanted = torch.autograd.grad(expected, list(net.parameters()))
        kept = _count_kept(net)
        found = answer(net, F.mse_loss, X, y, m)
        case = f"7 examples in {m} micro-batches"
        for p, gradient in zip(net.parameters(), wanted):
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            near = bool((grad - gradient).abs().max() < 1e-10)
            ratio = float(grad.norm() / gradient.norm())
            wrong = f"{ratio:.3f} times as long as it should be"
            require(near, f"{case}: a gradient is wrong, {wrong}")
        why = f"{case}: it returned {found}, the loss is {expected.item()}"
        require(abs(float(found) - expected.item()) < 1e-10, why)
        why = f"{case}: it keeps the activations of {max(kept)} at once"
        require(max(kept) == 1, f"{why}, where one is enough")


def _count_kept(net: nn.Sequential) -> list[int]:
    """Return a list that gets the micro-batches in flight at each forward.

    Those are in flight that have gone forward and not yet backward.
    """
    in_flight = [0]

    def goes_forward(*_: object) -> None:
        if torch.is_grad_enabled():
            in_flight.append(in_flight[-1] + 1)

    def has_gone_backward(_: Tensor) -> None:
        in_flight.append(in_flight[-1] - 1)

    net.register_forward_hook(goes_forward)
    first, *_ = net.parameters()
    first.register_post_accumulate_grad_hook(has_gone_backward)
    return in_flight
