"""Convolutional networks whose training was measured, simulated.

The networks are those of tf_cnn_benchmarks, TensorFlow's program of 2017, and
some that NVIDIA trained with PyTorch. A step is forward, backward and SGD on
images that lie on the devices. Several devices reduce buckets of gradients
while backward goes on; or, with a parameter server, each sends its gradients
there and, when a step begins, fetches all parameters.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models  # type: ignore[import-untyped]
from torchvision.models.resnet import (  # type: ignore[import-untyped]
    Bottleneck,
    ResNet,
)
from torchvision.ops import (  # type: ignore[import-untyped]
    SqueezeExcitation,
)

from dpkit import sim
from dpkit.data_parallel import BucketedDataParallel
from dpkit.machine import Timer, devices
from dpkit.streams import on_side_streams


def alexnet() -> nn.Module:
    """Return AlexNet with 64, 192, 384, 384 and 256 channels.

    Source:
        tensorflow/benchmarks, commit 2726f3d,
        scripts/tf_cnn_benchmarks/alexnet_model.py.
    """
    net = models.alexnet()
    net.features[8] = nn.Conv2d(384, 384, 3, padding=1)
    net.features[10] = nn.Conv2d(384, 256, 3, padding=1)
    return cast(nn.Module, net)


def first_stride(net: nn.Module) -> nn.Module:
    """Move the stride of each block of a ResNet to its first convolution.

    It is as in the paper; torchvision has it in the second, of 3×3.
    """
    for block in net.modules():
        if isinstance(block, Bottleneck):
            first = block.conv1
            second = block.conv2
            first.stride, second.stride = second.stride, first.stride
    return net


def resnext101() -> nn.Module:
    """Return ResNeXt-101 32x4d: 32 groups, of 4 channels in the first."""
    layers = [3, 4, 23, 3]
    net = ResNet(Bottleneck, layers, groups=32, width_per_group=4)
    return cast(nn.Module, net)


def with_squeeze_excitation(net: nn.Module) -> nn.Module:
    """Make each block of a ResNet weigh the channels of its result.

    Source:
        NVIDIA/DeepLearningExamples, commit 5843f4e,
        PyTorch/Classification/ConvNets/image_classification/models/resnet.py:
        behind the third batch norm, with 16 channels between.
    """
    for block in net.modules():
        if isinstance(block, Bottleneck):
            weigh = SqueezeExcitation(block.bn3.num_features, 16)
            block.bn3 = nn.Sequential(block.bn3, weigh)
    return net


# Name -> how to make it, and the side of its images. tf_cnn_benchmarks makes
# Inception v3 without the second classifier (commit 039fa95,
# scripts/tf_cnn_benchmarks/models/inception_model.py: auxiliary=False).
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "inception3": (
        lambda: models.inception_v3(aux_logits=False, init_weights=False),
        299,
    ),
    "resnet50": (lambda: first_stride(models.resnet50()), 224),
    "resnet152": (lambda: first_stride(models.resnet152()), 224),
    "alexnet": (alexnet, 224),
    "vgg16": (models.vgg16, 224),
    "resnet50 v1.5": (models.resnet50, 224),
    "resnext101-32x4d": (resnext101, 224),
    "se-resnext101-32x4d": (
        lambda: with_squeeze_excitation(resnext101()),
        224,
    ),
    "efficientnet-b0": (models.efficientnet_b0, 224),
    "efficientnet-b4": (models.efficientnet_b4, 380),
}


class _Trainer(BucketedDataParallel):
    """Takes steps of SGD on batches that lie on the devices."""

    def __init__(
        self,
        net: nn.Module,
        ranks: Sequence[torch.device],
        mixed: bool,
        server: bool,
    ) -> None:
        super().__init__(net, ranks, algorithm="library")
        self.mixed = mixed
        self.server = server
        self._pinned: dict[int, Tensor] = {}
        self.optimizers = [
            torch.optim.SGD(replica.parameters(), lr=0.1)
            for replica in self.replicas
        ]

    def step(self, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        if self.server:
            for rank, buckets in zip(self.devices, self.buckets):
                for bucket in buckets.buckets:
                    self._there(bucket.flat).to(rank, non_blocking=True)
        losses = []
        for optimizer, net, (X, y) in zip(
            self.optimizers, self.replicas, batches
        ):
            optimizer.zero_grad()
            with torch.autocast("sim", torch.float16, enabled=self.mixed):
                losses.append(F.cross_entropy(net(X), y))
        self.backward(losses)
        for optimizer in self.optimizers:
            optimizer.step()

    def _reduce(self, index: int) -> None:
        if not self.server:
            super()._reduce(index)
            return
        full = self._full[index]
        for rank, (bucket, event) in full.items():
            with on_side_streams({self.devices[rank]: event}):
                bucket.flat.to("cpu", non_blocking=True)

    def _there(self, flat: Tensor) -> Tensor:
        """Return pinned memory of the server, of a bucket's size."""
        n = len(flat)
        if n not in self._pinned:
            self._pinned[n] = torch.empty(n, pin_memory=True)
        return self._pinned[n]


def images_per_second(
    network: str,
    rows: int,
    num_devices: int = 1,
    mixed: bool = False,
    server: bool = False,
    **machine: Any,
) -> float:
    """Return the simulated images per second of training a network.

    Args:
        network: A name in ``NETWORKS``.
        rows: The images on each device.
        num_devices: How many there are.
        mixed: Whether it computes in float16 where autocast does.
        server: Whether gradients are summed in the memory of the host. If not,
            the devices reduce them in buckets.
        **machine: What :func:`dpkit.sim.machine` changes, by name.

    Example:
        >>> from recorders.trust.convolutional import images_per_second
        >>> one = images_per_second("alexnet", 512, accelerator="p100")
        >>> 2000 < one < 3000
        True
    """
    make, side = NETWORKS[network]
    where = {"backing": "meta", "hosts": "per_device", **machine}
    with sim.machine(num_devices=num_devices, **where):
        ranks = devices(num_devices, "sim")
        with torch.device("meta"):  # numbers that are drawn take seconds
            net = make()
        net = net.to_empty(device=ranks[0])
        trainer = _Trainer(net, ranks, mixed, server)
        batches = [_batch(rows, side, device) for device in ranks]
        trainer.step(batches)  # what is done once: gradients are made
        with Timer(ranks) as timer:
            trainer.step(batches)
    return num_devices * rows / timer.seconds


def _batch(
    rows: int, side: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    X = torch.empty(rows, 3, side, side, device=device)
    return X, torch.zeros(rows, dtype=torch.long, device=device)
