"""Whole training runs: epochs of steps, timed and scored."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm import tqdm

from dpkit.arguments import Devices, device_list
from dpkit.data_parallel import train_batch
from dpkit.evaluate import Batch, evaluate_accuracy
from dpkit.losses import Loss
from dpkit.machine import Timer
from dpkit.placement import replicate
from dpkit.units import check_count, show_seconds


@dataclass
class TrainingRecord:
    """What a training run did, epoch by epoch.

    Example:
        >>> record = dpkit.TrainingRecord(
        ...     dpkit.devices(2, "cpu"), accuracies=[0.5, 0.75],
        ...     seconds=[1.5, 2.5], clock="measured",
        ... )
        >>> print(record)
        test accuracy 0.75, 2 s/epoch measured, on cpu, cpu
    """

    devices: list[torch.device]
    #: Test accuracy after each epoch, from 0 to 1.
    accuracies: list[float] = field(default_factory=list)
    #: Seconds that each epoch's steps took, without testing.
    seconds: list[float] = field(default_factory=list)
    clock: str = ""  #: "measured", or "simulated" and on what
    #: The trained parameters on each device.
    device_params: list[list[Tensor]] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        names = ", ".join(str(device) for device in self.devices)
        if not self.accuracies:
            return f"no epoch yet, on {names}"
        seconds = sum(self.seconds) / len(self.seconds)
        return (
            f"test accuracy {self.accuracies[-1]:.2f}, "
            f"{show_seconds(seconds)}/epoch {self.clock}, on {names}"
        )


def train(
    net: Callable[[Tensor, Sequence[Tensor]], Tensor],
    loss: Loss,
    params: Iterable[Tensor],
    train_batches: Iterable[Batch],
    test_batches: Iterable[Batch],
    devices: Devices,
    lr: float,
    num_epochs: int,
    algorithm: str = "ring",
) -> TrainingRecord:
    """Train on all devices together; test after each epoch.

    The starting parameters are copied to every device and stay as they are.
    A progress bar counts the steps, unless ``TQDM_DISABLE=1``.

    Args:
        net: ``net(X, params)`` gives the scores, shape (rows, classes).
        loss: As for :func:`dpkit.train_batch`: no mean over examples.
        params: The parameters to start from.
        train_batches: Pairs of examples, shape (b, …), and labels, shape (b,).
        test_batches: The same, to measure accuracy on.
        devices: k devices.
        lr: The learning rate.
        num_epochs: How often to go through ``train_batches``.
        algorithm: As for :func:`dpkit.train_batch`.

    Raises:
        ValueError: an epoch has no batch, or as for :func:`train_batch`.

    Example:
        >>> X, y = torch.eye(4), torch.arange(4)
        >>> record = dpkit.train(
        ...     net=lambda X, params: X @ params[0],
        ...     loss=nn.CrossEntropyLoss(reduction="none"),
        ...     params=[torch.zeros(4, 4)],
        ...     train_batches=[(X, y)], test_batches=[(X, y)],
        ...     devices=dpkit.devices(3, kind="sim"), lr=1.0, num_epochs=2,
        ... )
        >>> record.accuracies
        [1.0, 1.0]
    """
    check_count("num_epochs", num_epochs)
    devices = device_list(devices)
    device_params = replicate(params, devices)
    record = TrainingRecord(devices, device_params=device_params)
    for epoch in range(1, num_epochs + 1):
        with Timer(devices) as timer:
            _train_epoch(
                lambda X, y: train_batch(
                    net, loss, X, y, device_params, devices, lr, algorithm
                ),
                train_batches,
                epoch,
            )
        record.seconds.append(timer.seconds)
        record.clock = timer.clock
        record.accuracies.append(
            evaluate_accuracy(net, test_batches, devices, device_params)
        )
    return record


def _train_epoch(
    step: Callable[[Tensor, Tensor], None],
    batches: Iterable[Batch],
    epoch: int,
) -> None:
    """Take a step for each batch, and count them in a progress bar."""
    num_steps = 0
    for X, y in tqdm(batches, f"epoch {epoch}", leave=False):
        step(X, y)
        num_steps += 1
    if num_steps == 0:
        raise ValueError(
            f"no batch to train on (epoch: {epoch}); a generator serves for "
            "one epoch, a list or Batches for all"
        )
