"""What the chapters begin with, a notebook and a textbook, simulated.

Neither names its GPUs. V100s on PCI Express are taken for them, because the
times of the notebook's products fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import dpkit
from dpbook.common.models import lenet, lenet_params
from dpbook.limits.comparisons import Comparison
from dpbook.two_devices.scaling import wrapper_step

CARDS: Any = {"accelerator": "v100-pcie", "link": "pcie3"}
HARDWARE = "not named; V100 PCIe"
STEPS = 235  # of 256 images, in an epoch of Fashion-MNIST
# The second and the third line are the first again, on four devices. The rate
# of pinned copies is among the sources of pcie3.
FITTED = ("50 products", "four devices in turn", "four devices at once",
          "copies, pageable", "products and pinned copies")  # fmt: skip


def products(x: torch.Tensor) -> list[torch.Tensor]:
    """Multiply a matrix by itself, 50 times."""
    return [x.mm(x) for _ in range(50)]


def notebook_seconds() -> dict[str, float]:
    """Simulate the notebook: what it printed -> seconds."""
    with dpkit.sim.machine(num_devices=4, backing="meta", **CARDS):
        devices = dpkit.devices(4, "sim")
        inputs = [torch.empty(4000, 4000, device=d) for d in devices]
        results = products(inputs[0])
        dpkit.synchronize(devices)
        return {
            "50 products, not waited for": _issued(inputs[0]),
            "50 products": _taken(devices, lambda: products(inputs[0])),
            "four devices in turn": _taken(devices, lambda: _in_turn(inputs)),
            "four devices at once": _taken(
                devices, lambda: [products(x) for x in inputs]
            ),
            "copies, pageable": _taken(
                devices, lambda: [y.to("cpu") for y in results]
            ),
            "products and pinned copies": _taken(
                devices,
                lambda: [
                    y.to("cpu", non_blocking=True) for y in products(inputs[0])
                ],
            ),
        }


def _issued(x: torch.Tensor) -> float:
    start = dpkit.sim.now()
    products(x)
    return dpkit.sim.now() - start


def _in_turn(inputs: Sequence[torch.Tensor]) -> None:
    for x in inputs:
        products(x)
        dpkit.synchronize([x.device])


def _taken(devices: Sequence[torch.device], work: Any) -> float:
    with dpkit.Timer(devices) as timer:
        work()
    return timer.seconds


def lenet_seconds(num_devices: int, **machine: Any) -> float:
    """Return the seconds of a step of LeNet on 256 images, by a star.

    The textbook's program copies from pageable memory, and reduces on the
    first GPU.
    """
    with dpkit.sim.machine(num_devices=num_devices, **{**CARDS, **machine}):
        devices = dpkit.devices(num_devices, "sim")
        params = dpkit.replicate(lenet_params(), devices)
        X = torch.ones(256, 1, 28, 28)
        y = torch.arange(256) % 10
        loss = nn.CrossEntropyLoss(reduction="none")
        for _ in range(2):  # the first step also makes the gradients
            with dpkit.Timer(devices) as timer:
                dpkit.train_batch(
                    lenet, loss, X, y, params, devices, 0.1, algorithm="star"
                )
    return timer.seconds


def notebook_rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the notebook's times."""
    simulated = notebook_seconds()
    for name, measured in record["seconds"].items():
        work = "copies" if "copies" in name else "products"
        if name.endswith("not waited for"):
            work = "small networks"  # the time of launches alone
        yield Comparison(
            "the notebook",
            HARDWARE,
            name,
            "s",
            simulated[name],
            measured,
            "fitted" if name in FITTED else "unseen",
            work,
        )


def lenet_rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare an epoch of LeNet, and that on two GPUs with that on one."""
    measured = record["seconds_per_epoch"]
    seconds = {k: STEPS * lenet_seconds(int(k)) for k in measured}
    for k, took in measured.items():
        where = f"{k} GPU, an epoch"
        values = "s", seconds[k], took, "unseen", "small networks"
        yield Comparison("LeNet", HARDWARE, where, *values)
    ratios = seconds["2"] / seconds["1"], measured["2"] / measured["1"]
    values = "times as long", *ratios, "unseen", "scaling"
    yield Comparison("LeNet", HARDWARE, "2 GPUs, not 1", *values)


def resnet18_rows(record: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the images per second of two GPUs with those of one."""
    one, two = (wrapper_step(k, rows=256 * k, **CARDS).seconds for k in (1, 2))
    for version in ("pytorch", "mxnet"):
        alone, both = record[version]["seconds_per_epoch"].values()
        values = "times one", 2 * one / two, alone / both, "unseen", "scaling"
        where = f"{version}, 2 GPUs"
        yield Comparison("ResNet-18", HARDWARE, where, *values)
