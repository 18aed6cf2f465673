"""Time a tree of modules against its bare operations, on the CPU; record it.

Usage: python scripts/record.py framework

A forward pass of modules runs Python between its operations: calls of
modules and their checks for hooks, ``forward``, ``torch.nn.functional``, and
what autograd notes. The operations that it calls are written down once, with
their arguments, and then called from a plain list. Networks and images are so
small that computing takes little of the time; what it takes is in both times.
The same is done for the step of an optimizer. It takes a minute.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from in_turns import time_in_turns
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only
from torchvision import models

from recorders.provenance import provenance, store

WIDTH = 2  # channels and features, at most
TOGETHER = 20  # calls timed together
ROUNDS = 5  # how often all are timed
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class BareCalls(TorchFunctionMode):
    """Write down the calls of C++ that give or change tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call it, and keep it with copies of its tensors."""
        kwargs = kwargs or {}
        alone = tree_map_only(Tensor, Tensor.detach, (args, kwargs))
        out = func(*args, **kwargs)
        is_fact = isinstance(out, (torch.Size, int))  # a shape or a number
        if not is_fact and func.__name__ != "__get__":  # x.dtype and the like
            self.calls.append((func, *alone))
        return out


def bare_calls(run: Callable[[], object]) -> list[Call]:
    """Return the operations that ``run`` calls."""
    # A function of F in Python would come whole, not the calls in it.
    names = [name for name in vars(F) if name.startswith("has_torch_function")]
    checks = dict.fromkeys(names, lambda *_: False)
    with patch.multiple(F, **checks), BareCalls() as found:
        run()
    return found.calls


def compared(run: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of ``run``, of its calls alone, and their ratio."""
    calls = bare_calls(run)

    def bare() -> None:
        for func, args, kwargs in calls:
            func(*args, **kwargs)

    whole: list[float] = []
    alone: list[float] = []
    for _ in range(ROUNDS):
        seconds = time_in_turns({"whole": run, "bare": bare}, TOGETHER)
        whole += seconds["whole"]
        alone += seconds["bare"]
    ratios = [tree / flat for tree, flat in zip(whole, alone, strict=True)]
    return {
        "calls": len(calls),
        "microseconds": round(1e6 * median(whole), 1),
        "bare_microseconds": round(1e6 * median(alone), 1),
        "ratio": round(median(ratios), 2),
    }


def lenet() -> nn.Module:
    """Return LeNet as a tree of modules, for images of 14 × 14."""
    return nn.Sequential(
        *(nn.Conv2d(1, WIDTH, 3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(WIDTH, WIDTH, 3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * WIDTH, WIDTH), nn.ReLU()),
        nn.Linear(WIDTH, WIDTH),
    )


def mlp() -> nn.Module:
    """Return three dense layers."""
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, *layers, nn.Linear(WIDTH, WIDTH))


def narrow(model: nn.Module) -> nn.Module:
    """Return a ResNet of the same tree, with few channels in all layers."""
    for module in model.modules():
        for name, layer in module.named_children():
            if isinstance(layer, nn.Conv2d):
                shape = layer.kernel_size, layer.stride, layer.padding
                new: nn.Module = nn.Conv2d(WIDTH, WIDTH, *shape, bias=False)
            elif isinstance(layer, nn.BatchNorm2d):
                new = nn.BatchNorm2d(WIDTH)
            elif isinstance(layer, nn.Linear):
                new = nn.Linear(WIDTH, WIDTH)
            else:
                continue
            setattr(module, name, new)
    return model


def networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Return the networks, and an input for each."""
    images = torch.rand(2, WIDTH, 8, 8)
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    return {
        "LeNet": (lenet(), torch.rand(1, 1, 14, 14)),
        "MLP": (mlp(), torch.rand(1, WIDTH)),
        "ResNet-18": (narrow(models.resnet18()), images),
        "ResNet-50": (narrow(models.resnet50()), images),
        "transformer layer": (encoder, torch.rand(1, 2, 4)),
    }


def optimizers(params: list[nn.Parameter]) -> dict[str, Any]:
    """Return SGD in the form for GPUs, and in the one for the CPU."""
    return {
        "lists of tensors": torch.optim.SGD(params, lr=0.0, foreach=True),
        "one by one": torch.optim.SGD(params, lr=0.0, foreach=False),
    }


def main() -> None:
    """Measure; write the record when all has been measured."""
    torch.set_num_threads(1)
    forward = {}
    without_autograd = {}
    steps = {}
    for name, (net, X) in networks().items():
        run = partial(net, X)
        forward[name] = compared(run)
        with torch.no_grad():
            without_autograd[name] = compared(run)
        net(X).sum().backward()
        for kind, optimizer in optimizers(list(net.parameters())).items():
            steps[f"{name}, {kind}"] = compared(optimizer.step)
    result: dict[str, Any] = {
        "what": "a tree of modules against a plain list of its operations, "
        "both on the CPU",
        "ratio": round(median(f["ratio"] for f in forward.values()), 2),
        "forward": forward,
        "forward_without_autograd": without_autograd,
        "optimizer_steps": steps,
    }
    command = "python scripts/record.py framework"
    store("framework_code", {"provenance": provenance(command), **result})
