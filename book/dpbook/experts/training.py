"""A small network with experts, trained with and without remedies.

An image of 28 × 28 is cut into 16 patches, and each patch is a token. A layer
of eight experts computes each token, and the mean of all tokens is classified.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.datasets import Labelled
from dpbook.experts.programs import all_experts
from dpkit.experts import balance_loss, moved_bias, route_tokens

PATCH, PLACES, WIDTH, INNER, NUM_EXPERTS, NUM_CLASSES = 7, 16, 32, 64, 8, 10
BATCH, RATE = 100, 3e-3


@dataclass(frozen=True)
class Remedy:
    """What keeps experts equally busy."""

    weight_of_loss: float = 0.0  # of balance_loss, added to the loss
    bias_step: float = 0.0  # by how much moved_bias moves, after each step


REMEDIES = {
    "none": Remedy(),
    "loss, 0.01": Remedy(weight_of_loss=0.01),
    "loss, 0.1": Remedy(weight_of_loss=0.1),
    "bias": Remedy(bias_step=0.01),
}


class Network(nn.Module):
    """Patches, a layer of experts, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH**2, WIDTH)
        self.places = nn.Parameter(torch.randn(PLACES, WIDTH) / 10)
        self.router = nn.Linear(WIDTH, NUM_EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH)
            )
            for _ in range(NUM_EXPERTS)
        )
        self.classify = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(
        self, images: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores of classes, of experts, and counts by expert.

        Args:
            images: Of shape (n, 1, 28, 28).
            bias: Of the choice of experts, of shape (experts,).
        """
        patches = F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
        x = (self.embed(patches) + self.places).flatten(0, 1)
        of_experts = self.router(x)
        routing = route_tokens(of_experts, bias=bias)
        x = x + all_experts(x, routing, list(self.experts))
        mean = x.unflatten(0, (-1, PLACES)).mean(1)
        return self.classify(mean), of_experts, routing.counts


@dataclass(frozen=True)
class Training:
    """What a training leaves."""

    busiest: list[float]  # the busiest expert's share of tokens, by epoch
    accuracy: float  # on the test set


def train(
    remedy: Remedy, seed: int, epochs: int, data: tuple[Labelled, Labelled]
) -> Training:
    """Train a network of experts, and see how busy they are.

    Args:
        remedy: What keeps them equally busy.
        seed: Of the parameters, and of the order of the images.
        epochs: How often each image is used.
        data: The images of the training and those of the test.
    """
    torch.manual_seed(seed)
    network, bias = Network(), torch.zeros(NUM_EXPERTS)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    busiest = []
    for _ in range(epochs):
        total = torch.zeros(NUM_EXPERTS)
        for images, labels in _batches(data[0]):
            scores, of_experts, counts = network(images, bias)
            loss = F.cross_entropy(scores, labels)
            loss = loss + remedy.weight_of_loss * balance_loss(of_experts)
            bias = moved_bias(bias, counts, remedy.bias_step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += counts
        busiest.append(float(total.max() / total.sum()))
    with torch.no_grad():
        scores, _, _ = network(data[1].images, bias)
    right = (scores.argmax(1) == data[1].labels).float().mean()
    return Training(busiest, float(right))


def _batches(data: Labelled) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the images in a random order, with their labels."""
    for chosen in torch.randperm(len(data.labels)).split(BATCH):
        yield data.images[chosen], data.labels[chosen]
