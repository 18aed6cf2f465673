"""A small network with batch norm, trained on few rows for each device."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.datasets import Labelled
from dpbook.common.loop import take_step
from dpkit import evaluate_accuracy

ROWS = 64  # of a step, over all devices
LR = 0.1
MOMENTUM = 0.9


class PerDeviceBatchNorm(nn.Module):
    """The batch norms of the replicas on k devices, in one module.

    In training the first k-th part of the rows belongs to device 0, the next
    to device 1, and so on; each part is normalized by itself. Channels of all
    devices make one operation, so that many take no longer than one.

    Example:
        >>> norm = PerDeviceBatchNorm(1, num_devices=2)
        >>> x = torch.tensor([[1.0], [3.0], [10.0], [30.0]])
        >>> norm(x).round().flatten().tolist()
        [-1.0, 1.0, -1.0, 1.0]
        >>> norm.running_mean.flatten().tolist()  # a tenth of 2, and of 20
        [0.20000000298023224, 2.0]
    """

    running_mean: Tensor  # of each replica, shape (k, C)
    running_var: Tensor

    def __init__(self, num_features: int, num_devices: int) -> None:
        super().__init__()
        self.num_devices = num_devices
        self.rank = 0  # whose running statistics are used in evaluation
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        shape = num_devices, num_features
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each device's rows, shape (k · rows, C, …)."""
        if not self.training:
            mean = self.running_mean[self.rank]
            var = self.running_var[self.rank]
            return F.batch_norm(x, mean, var, self.weight, self.bias)
        k = self.num_devices
        # (k · rows, C, …) -> (rows, k · C, …). Two devices have rows a, b and
        # c, d. One row gets the channels of a beside those of c. The next row
        # gets the channels of b beside those of d.
        x = x.unflatten(0, (k, -1)).transpose(0, 1).flatten(1, 2)
        mean = self.running_mean.view(-1)
        var = self.running_var.view(-1)
        weight = self.weight.repeat(k)
        bias = self.bias.repeat(k)
        x = F.batch_norm(x, mean, var, weight, bias, training=True)
        y: Tensor = x.unflatten(1, (k, -1)).transpose(0, 1).flatten(0, 1)
        return y


def small_net(num_devices: int, dense_norm: bool = True) -> nn.Sequential:
    """Return a network of 20,000 parameters with batch norms.

    Images have shape (b, 1, 28, 28), scores (b, 10). One device computes what
    synchronized batch norms compute on all.
    """
    dense = PerDeviceBatchNorm(32, num_devices)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        PerDeviceBatchNorm(8, num_devices),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        PerDeviceBatchNorm(16, num_devices),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 6 * 6, 32),
        dense if dense_norm else nn.Identity(),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def trained(
    train_set: Labelled,
    num_devices: int,
    seed: int,
    by_class: bool = False,
    dense_norm: bool = True,
) -> nn.Sequential:
    """Train the small network for an epoch, in steps of 64 rows.

    Rows that are left at the end are not used.

    Args:
        train_set: Images of shape (n, 1, 28, 28) and their labels.
        num_devices: How many groups of rows the batch norm normalizes apart.
        seed: Decides the first parameters and the shuffling.
        by_class: Whether the rows of a step are sorted by their label, so that
            each device sees few classes.
        dense_norm: Whether there is a batch norm after the dense layer, too.
    """
    torch.manual_seed(seed)
    net = small_net(num_devices, dense_norm)
    optimizer = torch.optim.SGD(net.parameters(), LR, MOMENTUM)
    images, labels = train_set
    for rows in torch.randperm(len(labels)).split(ROWS):
        if len(rows) == ROWS:
            if by_class:
                rows = rows[labels[rows].argsort()]
            take_step(net, optimizer, images[rows], labels[rows])
    return net


def accuracy(net: nn.Module, test_set: Labelled, rank: int = 0) -> float:
    """Return the accuracy with the running statistics of one replica."""
    for module in net.modules():
        if isinstance(module, PerDeviceBatchNorm):
            module.rank = rank
    return evaluate_accuracy(net, [test_set], [torch.device("cpu")])
