"""What an operation and a step cost on simulated devices and on the CPU."""

from collections.abc import Callable

import torch
from in_turns import time_in_turns
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import dpkit
from bench_parts.ratios import Ratio, added, over
from bench_parts.rows import CPU_TIME, Row, by_cpu_time, wall
from dpbook.common.batches import Batches
from dpbook.common.models import lenet, lenet_params


def operation() -> Row:
    """An elementwise operation: what does the simulation add?

    A fake tensor is used inside of its mode, as programs do: outside of it an
    operation takes a third longer.
    """
    x = torch.ones(64, 64)
    on_sim = x.to(dpkit.devices(1, "sim")[0])
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)

    def add_to_itself(tensor: torch.Tensor) -> None:
        for _ in range(2000):
            tensor + tensor

    def add_in_mode() -> None:
        with mode:
            add_to_itself(fake)

    ways = {
        "plain CPU": lambda: add_to_itself(x),
        "simulated device": lambda: add_to_itself(on_sim),
        "FakeTensorMode": add_in_mode,
    }
    share = added("simulated device", "FakeTensorMode", plain="plain CPU")
    return Row(
        "2,000 times x + x, 64 × 64, with clock and memory",
        CPU_TIME,
        by_cpu_time(ways),
        [Ratio("it adds, of what FakeTensorMode adds", share, at_most=0.15)],
    )


def step() -> Row:
    """A step of LeNet: kinds and numbers of devices."""
    X = torch.rand(256, 1, 28, 28)
    y = torch.arange(256) % 10
    loss = nn.CrossEntropyLoss(reduction="none")

    def step_on(count: int, kind: str) -> Callable[[], None]:
        devices = dpkit.devices(count, kind)
        params = dpkit.replicate(lenet_params(), devices)
        return lambda: dpkit.train_batch(
            lenet, loss, X, y, params, devices, lr=0.01
        )

    ways = {
        "1 × cpu": step_on(1, "cpu"),
        "1 simulated": step_on(1, "sim"),
        "2 × cpu": step_on(2, "cpu"),
        "2 simulated": step_on(2, "sim"),
    }
    return Row(
        "train_batch, LeNet, batch of 256",
        CPU_TIME,
        by_cpu_time(ways, count=5),
        [
            Ratio("two CPU devices over one", over("2 × cpu", "1 × cpu")),
            Ratio("simulated over plain", over("2 simulated", "2 × cpu")),
        ],
    )


def reading() -> Row:
    """A pass over 10,000 images in batches of 256, by index."""
    images = torch.rand(10_000, 1, 28, 28)
    labels = torch.arange(10_000)
    batches = Batches(images, labels, 256, shuffle=True)
    ways = {
        "one copy": images.clone,
        "Batches": lambda: sum(len(y) for _, y in batches),
    }
    seconds = time_in_turns(ways, count=5)
    return Row("read 10,000 images once", wall(), seconds)
