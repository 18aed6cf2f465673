"""Training steps, measured and simulated: how far off are presets?

The networks are none that a calibration has timed.
"""

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from dpkit import sim
from dpkit.lab.common.models import LeNet
from dpkit.lab.limits.comparisons import (
    Comparison,
    Comparisons,
    Decision,
    show_factor,
)
from dpkit.machine import Timer, devices
from dpkit.theory.hardware import Accelerator, Host, Link
from dpkit.theory.tables import Table

ON_CPU = "networks on a CPU"  # the class of work
WARM_UP = 2  # steps that do what is done once: load, allocate, lay out


class TransformerBlock(nn.Module):
    """Attention with 8 heads of 32, two dense layers, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(
            256, 8, dim_feedforward=1024, dropout=0.0, batch_first=True
        )
        self.classifier = nn.Linear(256, 10)

    def forward(self, X: Tensor) -> Tensor:
        """Return the scores, shape (b, 10), of sequences (b, 64, 256)."""
        scores: Tensor = self.classifier(self.block(X).mean(dim=1))
        return scores


def mlp() -> nn.Module:
    """Return three dense layers, from 784 numbers by way of 512 to 10."""
    layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(512, 10))


def resnet18() -> nn.Module:
    """Return torchvision's ResNet-18, for ten classes."""
    return _of_torchvision("resnet18")


def mobilenet() -> nn.Module:
    """Return torchvision's MobileNet v2, for ten classes.

    Its convolutions of 3×3 have as many groups as channels.
    """
    return _of_torchvision("mobilenet_v2")


def _of_torchvision(name: str) -> nn.Module:
    # Here, not above: the others need no torchvision.
    from torchvision import models  # type: ignore[import-untyped]

    model: nn.Module = models.get_model(name, num_classes=10)
    return model


@dataclass(frozen=True)
class Case:
    """A network to train, with batches of some sizes."""

    name: str
    make: Callable[[], nn.Module]  # on the CPU
    shape: Sequence[int]  # of one example
    batch_sizes: Sequence[int]


CASES = (
    Case("LeNet", LeNet, (1, 28, 28), (16, 64, 256)),
    Case("MLP", mlp, (784,), (16, 64, 256)),
    Case("ResNet-18", resnet18, (3, 32, 32), (4, 16, 64)),
    Case("transformer block", TransformerBlock, (64, 256), (2, 8, 32)),
    Case("MobileNet", mobilenet, (3, 64, 64), (4, 16, 64)),
)


@dataclass(frozen=True)
class Prediction:
    """A training step of one network and batch size, and two times of it."""

    model: str
    batch_size: int
    measured_seconds: float  # the median of several steps
    least_seconds: float  # if far less, the machine had other work
    predicted_seconds: float  # on the simulated clock

    @property
    def factor(self) -> float:
        """How many times too long the prediction is."""
        return self.predicted_seconds / self.measured_seconds


def predictions(
    accelerator: Accelerator,
    host: Host,
    link: Link,
    device: torch.device,
    cases: Sequence[Case] = CASES,
    num_steps: int = 11,
) -> list[Prediction]:
    """Measure training steps on a device, and simulate the same on presets.

    All are measured before the first is simulated: see ``sim.why_apart``.
    """
    tasks = [(case, size) for case in cases for size in case.batch_sizes]
    measured = []
    for case, size in tqdm(tasks, "training steps", leave=False):
        measured.append(step_seconds(case, size, device, num_steps))
        gc.collect()
    rows = []
    presets = {"accelerator": accelerator, "host": host, "link": link}
    with sim.machine(num_devices=1, backing="meta", **presets):
        (simulated,) = devices(1, kind="sim")
        for (case, size), seconds in zip(tasks, measured, strict=True):
            (predicted,) = step_seconds(case, size, simulated, 1)
            times = median(seconds), min(seconds), predicted
            rows.append(Prediction(case.name, size, *times))
            gc.collect()
    return rows


def step_seconds(
    case: Case, batch_size: int, device: torch.device, num_steps: int
) -> list[float]:
    """Return the seconds of steps of SGD on a device, once it is warm."""
    model = case.make().to(device)
    X = torch.rand(batch_size, *case.shape, device=device)
    y = torch.zeros(batch_size, dtype=torch.long, device=device)
    # foreach=False, which is the choice on the CPU: the same on all devices.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    seconds = []
    for _ in range(WARM_UP + num_steps):
        with Timer([device]) as timer:
            optimizer.zero_grad()
            F.cross_entropy(model(X), y).backward()
            optimizer.step()
        seconds.append(timer.seconds)
    return seconds[WARM_UP:]


def compared(rows: Sequence[Prediction], hardware: str) -> Comparisons:
    """Return these steps as comparisons, of networks on a CPU.

    The decision of a network is the batch size of most examples a second.
    """
    comparisons = [
        Comparison(
            row.model,
            hardware,
            f"batch {row.batch_size}",
            "s",
            row.predicted_seconds,
            row.measured_seconds,
            "unseen",
            ON_CPU,
        )
        for row in rows
    ]
    question = "which batch gives the most examples a second"
    decisions = [
        Decision(question, model, hardware, *_best(group), ON_CPU)
        for model, group in groupby(rows, lambda row: row.model)
    ]
    return Comparisons(comparisons, decisions)


def _best(group: Iterable[Prediction]) -> tuple[str, str]:
    """Return the best batch size, predicted and measured."""
    rows = list(group)
    ways = (
        max(rows, key=lambda row: row.batch_size / row.predicted_seconds),
        max(rows, key=lambda row: row.batch_size / row.measured_seconds),
    )
    predicted, measured = (str(row.batch_size) for row in ways)
    return predicted, measured


def table(rows: Iterable[Prediction]) -> Table:
    """Return a table of times, and of the factors by which they are off."""
    times = "measured ms:.2f | (least):.2f | predicted ms:.2f"
    table = Table(f"model | batch | {times} | factor:>")
    for row in rows:
        measured = row.measured_seconds, row.least_seconds
        ms = (1e3 * s for s in (*measured, row.predicted_seconds))
        table.add(row.model, row.batch_size, *ms, show_factor(row.factor))
    return table
