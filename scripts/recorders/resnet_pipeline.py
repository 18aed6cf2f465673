"""ResNet-50 on two devices, as a tutorial of PyTorch's splits and times it.

One Python program puts half of the layers on each device and sends pieces of
the batch through, one after another. It waits for none, so that the devices
work at once where they can::

    device 0 | piece 0 | piece 1 | piece 2 |
    device 1 |         | piece 0 | piece 1 | piece 2 |
"""

import torch
import torchvision  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit import sim
from dpkit.machine import devices, synchronize
from dpkit.sim.hardware import Accelerator, Host, Link

BATCH_SIZE = 120
IMAGE_SIZE = 128
NUM_CLASSES = 1000
NUM_BATCHES = 3


def halves(net: nn.Module) -> tuple[nn.Sequential, nn.Sequential]:
    """Cut a ResNet of torchvision after the second of its four groups."""
    layers = [*net.children()]
    return (
        nn.Sequential(*layers[:6]),
        nn.Sequential(*layers[6:9], nn.Flatten(), *layers[9:]),
    )


def forward(
    first: nn.Module,
    second: nn.Module,
    X: Tensor,
    device: torch.device,
    split_size: int | None = None,
) -> Tensor:
    """Send a batch through both halves of a network, in pieces.

    A piece is issued to the first device after the one before has been issued
    to the second.

    Args:
        first: The first half, on the device of the batch.
        second: The second half.
        X: The batch, shape (b, …).
        device: That of the second half.
        split_size: The rows of a piece. None: all, in one piece.

    Returns:
        The outputs of the whole batch, on the second device.
    """
    head, *rest = X.split(split_size or len(X))
    between = first(head).to(device)
    scores = []
    for piece in rest:
        scores.append(second(between))
        between = first(piece).to(device)
    return torch.cat([*scores, second(between)])


def resnet50_seconds(
    split_size: int | None,
    num_devices: int,
    accelerator: str | Accelerator = "k80",
    link: str | Link = "pcie3",
    host: str | Host = "eager",
    num_batches: int = NUM_BATCHES,
    waits: bool = False,
) -> float:
    """Simulate the tutorial's program: seconds of three steps of training.

    The tutorial's clock stops when the program has issued its last operation:
    nothing waits for the last backward pass. What the CPU does to make the
    inputs is not in these seconds.

    Args:
        split_size: The rows of a piece; None: the batch is not split.
        num_devices: One, or two with half of the layers on each.
        accelerator: What they are.
        link: What joins them.
        host: What issuing costs.
        num_batches: How many steps, of 120 images of 128×128.
        waits: Whether the clock waits for the devices in the end.

    Raises:
        ValueError: there are more than two devices, or none.
        RuntimeError: tensors live on simulated devices without numbers.

    Source:
        PyTorch tutorials, "Single-Machine Model Parallel Best Practices",
        intermediate_source/model_parallel_tutorial.py.
    """
    if num_devices not in (1, 2):
        raise ValueError(
            f"the network has two halves (num_devices: {num_devices})"
        )
    with sim.machine(
        num_devices=num_devices,
        accelerator=accelerator,
        link=link,
        host=host,
        backing="meta",
    ):
        return _program(split_size, num_batches, waits)


def _program(split_size: int | None, num_batches: int, waits: bool) -> float:
    """Train as the tutorial does, on all simulated devices."""
    found = devices(kind="sim")
    here = found[0]
    there = found[-1]
    net = torchvision.models.resnet50(num_classes=NUM_CLASSES)
    first, second = (x.to(d) for x, d in zip(halves(net), (here, there)))
    parameters = [*first.parameters(), *second.parameters()]
    # foreach=False, and gradients set to zero: all there was at the time.
    optimizer = torch.optim.SGD(parameters, lr=0.001, foreach=False)
    X = torch.empty(BATCH_SIZE, 3, IMAGE_SIZE, IMAGE_SIZE)
    Y = torch.empty(BATCH_SIZE, NUM_CLASSES)  # one-hot
    synchronize(found)
    start = sim.now()
    for _ in range(num_batches):
        optimizer.zero_grad(set_to_none=False)
        scores = forward(first, second, X.to(here), there, split_size)
        F.mse_loss(scores, Y.to(there)).backward()
        optimizer.step()
    if waits:
        synchronize(found)
    return sim.now() - start
