"""Training steps, measured and simulated: how far off are presets?

The networks are none that a calibration has timed.
"""

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from dpkit import sim
from dpkit.machine import Timer, devices
from dpkit.sim.hardware import Accelerator, Host, Link
from dpkit.tables import Table, table
from dpkit.units import show_factor

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


def lenet() -> nn.Module:
    """Return two convolutions and two dense layers, for (b, 1, 28, 28)."""
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2)),  # (b, 20, 13, 13)
        *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)),  # (b, 50, 4, 4)
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp() -> nn.Module:
    """Return three dense layers, from 784 features over 512 to 10."""
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
    Case("LeNet", lenet, (1, 28, 28), (16, 64, 256)),
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
    _: KW_ONLY
    measured_seconds: float  # the median of several steps
    least_seconds: float  # if far less, the machine had other work
    predicted_seconds: float  # on the simulated clock

    @property
    def factor(self) -> float:
        """The predicted seconds, divided by the measured ones."""
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

    All are measured before the first is simulated: see ``why_apart`` in
    ``sim/changes``.

    Args:
        accelerator: The device's preset.
        host: Its host's preset.
        link: The preset of its link, to the host or to another device.
        device: The device on which steps are measured.
        cases: The networks to train.
        num_steps: How many steps to measure; their median counts.

    Returns:
        A prediction for each network and batch size.
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
            rows.append(
                Prediction(
                    model=case.name,
                    batch_size=size,
                    measured_seconds=median(seconds),
                    least_seconds=min(seconds),
                    predicted_seconds=predicted,
                )
            )
            gc.collect()
    return rows


def step_seconds(
    case: Case, batch_size: int, device: torch.device, num_steps: int
) -> list[float]:
    """Return the seconds of each of some steps of SGD on a device.

    A few steps before them are not timed: they warm the device up.

    Args:
        case: The network to train.
        batch_size: The number of examples in a step.
        device: Where to train, a real or a simulated device.
        num_steps: How many steps to time.
    """
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


def predictions_table(rows: Iterable[Prediction]) -> Table:
    """Return a table of times, and of the factors by which they are off."""
    return table(
        [
            {
                "model": row.model,
                "batch": row.batch_size,
                "measured ms": f"{1e3 * row.measured_seconds:.2f}",
                "(least)": f"{1e3 * row.least_seconds:.2f}",
                "predicted ms": f"{1e3 * row.predicted_seconds:.2f}",
                "factor": show_factor(row.factor),
            }
            for row in rows
        ]
    )
