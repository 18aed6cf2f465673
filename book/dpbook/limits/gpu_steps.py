"""Training steps of whole models, timed on a GPU or on the simulated clock.

The same function times both, so that they can be compared.
"""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.records import record_path
from dpbook.mesh.model import Llama, Sizes
from dpkit import Timer, sim

WARM_UP = 3  # steps in which libraries are loaded and kernels are chosen

SMALL = Sizes(
    vocabulary=50_304,
    width=768,
    blocks=12,
    heads=12,
    key_heads=12,
    inner=2_048,
    length=1_024,
)
LARGE = Sizes(
    vocabulary=32_000,
    width=2_048,
    blocks=16,
    heads=32,
    key_heads=8,
    inner=5_632,
    length=2_048,
)


def resnet50() -> nn.Module:
    """Return torchvision's ResNet-50, for a thousand classes."""
    # Here, not above: the others need no torchvision.
    from torchvision import models  # type: ignore[import-untyped]

    model: nn.Module = models.resnet50()
    return model


def small_llama() -> nn.Module:
    """Return a Llama as large as the smallest GPT-2: 162 million."""
    return Llama(SMALL)


def large_llama() -> nn.Module:
    """Return a Llama of 0.9 billion parameters."""
    return Llama(LARGE)


@dataclass(frozen=True)
class Case:
    """A model to train, and how."""

    name: str
    make: Callable[[], nn.Module]
    _: KW_ONLY
    shape: tuple[int, ...]  # of an example: an image, or so many tokens
    classes: int  # of an image, or of a token
    batch_size: int
    bfloat16: bool  # whether autocast computes in it where it may


RESNET = Case(
    "ResNet-50",
    resnet50,
    shape=(3, 224, 224),
    classes=1_000,
    batch_size=64,
    bfloat16=False,
)
SMALL_LLAMA = Case(
    "Llama, 0.16 billion",
    small_llama,
    shape=(SMALL.length,),
    classes=SMALL.vocabulary,
    batch_size=8,
    bfloat16=False,
)
LARGE_LLAMA = Case(
    "Llama, 0.9 billion",
    large_llama,
    shape=(LARGE.length,),
    classes=LARGE.vocabulary,
    batch_size=1,
    bfloat16=True,
)
CASES = (
    RESNET,
    replace(RESNET, bfloat16=True),
    replace(RESNET, bfloat16=True, batch_size=256),
    SMALL_LLAMA,
    replace(SMALL_LLAMA, bfloat16=True),
    LARGE_LLAMA,
    replace(LARGE_LLAMA, batch_size=4),
)


@dataclass(frozen=True)
class Step:
    """What a training step takes."""

    seconds: float  # the median
    least_seconds: float
    peak_bytes: int  # the most memory that tensors took on the device


def machine_of(preset: str) -> AbstractContextManager[object]:
    """Return one simulated device without values, like the GPU of the record.

    Args:
        preset: An accelerator, with the host of the presets; or "calibrated":
            what ``dpkit calibrate`` has measured on that GPU.
    """
    presets = {"accelerator": preset}
    if preset == "calibrated":
        calibrated = str(record_path("calibrated_h200"))
        presets = dict.fromkeys(("accelerator", "host", "link"), calibrated)
    return sim.machine(num_devices=1, backing="meta", **presets)


def train(case: Case, device: torch.device, num_steps: int) -> Step:
    """Train a model with AdamW for some steps; return what one takes.

    Args:
        case: The model, the batch, and the precision.
        device: A GPU, or a simulated device.
        num_steps: How many steps to time, after a few that warm up.
    """
    with device:
        model = case.make()
    X, y = batch(case, device)
    memory = torch.get_device_module(device)
    memory.reset_peak_memory_stats(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    seconds = []
    for _ in range(WARM_UP + num_steps):
        with Timer([device]) as timer:
            optimizer.zero_grad()
            with precision(case, device):
                scores = model(X)
                loss = F.cross_entropy(scores.flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
        seconds.append(timer.seconds)
    peak = memory.max_memory_allocated(device)
    del model, optimizer, loss, scores
    gc.collect()
    timed = seconds[WARM_UP:]
    return Step(median(timed), min(timed), peak)


def batch(case: Case, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return random images and classes, or tokens and those that follow."""
    of_images = len(case.shape) == 3
    shape = case.batch_size, *case.shape
    y_shape = shape[:1] if of_images else shape
    y = torch.randint(case.classes, y_shape, device=device)
    if of_images:
        return torch.rand(shape, device=device), y
    return torch.randint(case.classes, shape, device=device), y


def precision(
    case: Case, device: torch.device
) -> AbstractContextManager[object]:
    """Return a block that computes in the precision of a case."""
    if case.bfloat16:
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()
