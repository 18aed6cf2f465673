"""A loop of training that does not know how many devices there are."""

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from dpbook.common.batches import Batches


def take_step(
    net: nn.Module, optimizer: Optimizer, X: Tensor, y: Tensor
) -> Tensor:
    """Take a step of an optimizer on the mean loss of a batch.

    Args:
        net: A module, or a wrapper that sends the examples to its devices.
        optimizer: That of the parameters of the net.
        X: The examples, shape (b, …).
        y: The labels, shape (b,), on any device.

    Returns:
        The mean loss before the step, a tensor of no dimensions.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> layer = nn.Linear(3, 5).to(devices[0])
        >>> net = dpkit.DataParallel(layer, devices)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> X, y = torch.ones(4, 3), torch.zeros(4).long()
        >>> first = take_step(net, optimizer, X, y)
        >>> bool(take_step(net, optimizer, X, y) < first)
        True
    """
    optimizer.zero_grad()
    scores = net(X)
    y = y.to(scores.device, non_blocking=y.is_pinned())
    loss = F.cross_entropy(scores, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_epoch(
    net: nn.Module, optimizer: Optimizer, batches: Batches
) -> float:
    """Take a step for each batch; return the mean loss over all examples."""
    losses = [take_step(net, optimizer, X, y) * len(y) for X, y in batches]
    return float(sum(losses)) / len(batches.labels)
