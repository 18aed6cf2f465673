"""Count what a step of the book's networks launches and computes; record it.

Usage: python scripts/record.py counts

The steps are those of the chapters, on one simulated device. Each operation
is counted for two batches, as so much for each image and so much besides. The
numbers are exact, and the same on every machine. It takes seconds.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import dpbook
import dpkit
from dpbook.common.models import lenet, lenet_params
from dpbook.common.resnet import resnet18
from dpbook.overlap.runs import wide
from dpbook.two_devices.runs import train_step
from dpkit.sim.hardware import HOSTS, costs
from dpkit.sim.tensors import charge

FILE = Path(dpbook.__file__).parent / "formulas" / "data" / "networks.json"
# The parameters, and a step for images and labels.
Made = tuple[list[Tensor], Callable[[Tensor, Tensor], object]]
SMALL = 64  # images
LARGE = 256
PARTS = ("forward", "backward", "update")
HOST = HOSTS["eager"]


def main() -> None:
    """Count all networks; write the file that is part of dpkit."""
    FILE.parent.mkdir(exist_ok=True)
    found = {name: count(make) for name, make in NETWORKS.items()}
    lines = json.dumps(found).replace("]], ", "]],\n  ")
    FILE.write_text(lines.replace("], [", "],\n    [") + "\n")


def by_hand(device: torch.device) -> Made:
    """Return the parameters of LeNet, and the step built by hand."""
    (params,) = dpkit.replicate(lenet_params(), [device])
    loss = nn.CrossEntropyLoss(reduction="none")

    def step(X: Tensor, y: Tensor) -> None:
        dpkit.train_batch(lenet, loss, X, y, [params], [device], 0.1)

    return params, step


def of_modules(make: Callable[[], nn.Module], device: torch.device) -> Made:
    """Return the parameters of a module, and its step of SGD."""
    net = make().to(device)
    return list(net.parameters()), lambda X, y: train_step(
        [net], X, y, [device]
    )


NETWORKS: dict[str, Callable[[torch.device], Made]] = {
    "LeNet": by_hand,
    "ResNet-18": partial(of_modules, resnet18),
    "wide": partial(of_modules, wide),
}


def count(make: Callable[[torch.device], Made]) -> dict[str, Any]:
    """Return what a step does, in the order in which it is launched.

    Each entry has views and launches of the host, then the flops of the
    operation and the bytes that it moves. These are for each image and
    besides. The dtype and the class of a convolution end it. ``gradients`` is
    the bytes of each gradient and how many entries of backward come before it.
    """
    small, gradients = _one_step(make, SMALL)
    large, _ = _one_step(make, LARGE)
    images = LARGE - SMALL
    found: dict[str, Any] = {"gradients": gradients}
    for part in PARTS:
        entries = []
        for a, b in zip(small[part], large[part], strict=True):
            assert [*a[:2], *a[4:]] == [*b[:2], *b[4:]]
            each = [(y - x) / images for x, y in zip(a[2:4], b[2:4])]
            rest = [x - SMALL * e for x, e in zip(a[2:4], each)]
            work = (each[0], rest[0], each[1], rest[1])
            entries.append([*a[:2], *(_plain(w) for w in work), *a[4:]])
        found[part] = entries
    return found


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _one_step(
    make: Callable[[torch.device], Made], rows: int
) -> tuple[dict[str, list[list[Any]]], list[list[int]]]:
    with dpkit.sim.machine(backing="meta", host=HOST), _charged() as charged:
        (device,) = dpkit.devices(1, kind="sim")
        params, step = make(device)
        X = torch.zeros(rows, 1, 28, 28).pin_memory()
        y = torch.zeros(rows, dtype=torch.long).pin_memory()
        marks: list[tuple[int, int]] = []  # bytes, operations so far

        def mark(p: Tensor) -> None:
            marks.append((p.nbytes, len(charged)))

        for p in params:
            p.register_post_accumulate_grad_hook(mark)
        dpkit.synchronize([device])
        charged.clear()
        with dpkit.sim.trace() as timeline:
            step(X, y)
            dpkit.synchronize([device])
    launches = [s for s in timeline.spans if s.kind == "launch"]
    parts = _entries(launches, charged)
    before = sum(1 for entry in parts["forward"] if entry[1])
    return parts, [[n, at - before] for n, at in marks]


@contextmanager
def _charged() -> Iterator[list[tuple[Any, ...]]]:
    """Yield the list of what operations are charged for, in order."""
    found = []
    real = costs.operation_seconds

    def noted(accelerator: Any, **work: Any) -> float:
        if "kind" in work:  # not of memory that nothing fills
            found.append(
                (
                    work["flops"],
                    work["num_bytes"],
                    work["dtype"],
                    work["kind"],
                )
            )
        return real(accelerator, **work)

    with patch.object(charge, "operation_seconds", noted):
        yield found


def _entries(
    launches: list[Any], charged: list[tuple[Any, ...]]
) -> dict[str, list[list[Any]]]:
    """Join what the host launched to what the device did for it."""
    parts: dict[str, list[list[Any]]] = {part: [] for part in PARTS}
    works = iter(charged)
    views = 0
    last = "forward"
    for span in sorted(launches, key=lambda s: s.start):
        part = "backward" if "backward" in span.stream else last
        last = "update" if part == "backward" else last
        if "copy" in span.name or span.name == "empty_strided":
            continue  # images, which arrive before
        if part != "backward" and last == "update" and span.name in VIEWS:
            continue  # of the allreduce
        seconds = span.end - span.start
        if abs(seconds - HOST.view_seconds) < 1e-9:
            views += 1
            continue
        each = HOST.launch_seconds
        if part == "backward":
            each = HOST.backward_launch_seconds
        work = next(works)
        parts[part].append([views, round(seconds / each), *work])
        views = 0
    assert next(works, None) is None
    return parts


VIEWS = ("view", "slice")

if __name__ == "__main__":
    main()
