"""A small network to compare numbers on."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_ROWS = 257  # two GPUs do not divide them
NUM_STEPS = 3
# In double precision; what differs is the order of sums.
TOLERANCE = 1e-9


def small_net(norm: bool = True) -> nn.Module:
    """Return a network for images of 12 × 12, in double precision."""
    torch.manual_seed(0)
    normalized = nn.BatchNorm2d(4) if norm else nn.Identity()
    layers = (nn.Conv2d(1, 4, 3), normalized, nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(400, 5)).double()


def batch(seed: int, num_rows: int = NUM_ROWS) -> tuple[Tensor, Tensor]:
    """Return images, shape (num_rows, 1, 12, 12), and labels."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(num_rows, 1, 12, 12, generator=generator).double()
    return X, torch.randint(5, (num_rows,), generator=generator)


def trained(
    net: nn.Module,
    device: torch.device,
    part: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> list[Tensor]:
    """Train a few steps; return parameters and buffers, on the CPU.

    Args:
        net: A network, or a wrapper of one.
        device: Where it takes its input.
        part: What it is given of the rows of a batch.
    """
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step in range(NUM_STEPS):
        X, y = (part(rows).to(device) for rows in batch(step))
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
    return [value.cpu() for value in net.state_dict().values()]


def compare(
    what: str, found: Sequence[Tensor], wanted: Sequence[Tensor]
) -> None:
    """Print how far numbers are apart.

    Raises:
        ValueError: further than rounding explains.
    """
    away = max(
        float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)
    )
    print(f"{what}: largest difference {away:.2g}", flush=True)
    if not away < TOLERANCE:
        raise ValueError(
            f"more than rounding (difference: {away:.2g}, allowed: "
            f"{TOLERANCE:g}, what: {what})"
        )
