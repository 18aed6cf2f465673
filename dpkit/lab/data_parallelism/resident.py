"""An epoch whose images are already on the device that uses them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.data_parallel import train_batch
from dpkit.lab.common.batches import Batches
from dpkit.lab.common.datasets import Labelled
from dpkit.lab.common.models import lenet
from dpkit.machine import Timer


def time_resident_epoch(
    images: Labelled,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float = 0.2,
    batch_size: int = 256,
) -> Timer:
    """Train LeNet for one epoch on images that lie on the first device.

    They are copied there before the time begins. From then on the host sends
    an order of rows, once, and launches operations.

    Returns:
        A timer that has stopped; ``seconds`` are those of the epoch.

    Example:
        >>> from dpkit.lab.common.datasets import Labelled, load_fashion_mnist
        >>> from dpkit.lab.common.models import lenet_params
        >>> from dpkit.lab.data_parallelism.resident import time_resident_epoch
        >>> train_set, _ = load_fashion_mnist()
        >>> few = Labelled(*(part[:1000] for part in train_set))
        >>> devices = dpkit.devices(1, kind="sim")
        >>> params = dpkit.replicate(lenet_params(0.01), devices)
        >>> timer = time_resident_epoch(few, params, devices)
        >>> timer.seconds < 0.01, timer.clock
        (True, 'simulated (v100, nvlink2)')
    """
    X, y = (tensor.to(devices[0]) for tensor in images)
    loss = nn.CrossEntropyLoss(reduction="none")
    batches = Batches(X, y, batch_size, shuffle=True)
    with Timer(devices) as timer:
        for X, y in batches:
            train_batch(lenet, loss, X, y, device_params, devices, lr)
    return timer
