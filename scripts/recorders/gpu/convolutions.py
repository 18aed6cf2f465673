"""Rates of convolutions: those of ResNet-50, in four precisions."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recorders.gpu.stopwatch import seconds_of


@dataclass(frozen=True)
class Shape:
    """A convolution of square images."""

    rows: int
    in_channels: int
    out_channels: int
    side: int
    kernel: int
    stride: int


# Sides of images with the narrow and the wide channels of a stage.
STAGES = ((56, 64, 256), (28, 128, 512), (14, 256, 1024), (7, 512, 2048))
# Name -> the type of tensors, and whether float32 may be rounded to TF32.
PRECISIONS = {
    "bfloat16": (torch.bfloat16, True),
    "float16": (torch.float16, True),
    "tf32": (torch.float32, True),
    "float32": (torch.float32, False),
}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def shapes() -> Iterator[Shape]:
    """Return the convolutions that are timed."""
    yield Shape(64, 3, 64, 224, 7, 2)
    for side, narrow, wide in STAGES:
        for rows in (64, 256):
            yield Shape(rows, wide, narrow, side, 1, 1)
            yield Shape(rows, narrow, narrow, side, 3, 1)
            yield Shape(rows, narrow, wide, side, 1, 1)
        yield Shape(256, narrow, narrow, 2 * side, 3, 2)


def time_convolutions(device: torch.device) -> list[dict[str, Any]]:
    """Time each convolution and its backward, in all precisions."""
    return [
        {"precision": name, "format": layout, **asdict(shape)}
        | _time(shape, dtype, rounded, FORMATS[layout], device)
        for name, (dtype, rounded) in PRECISIONS.items()
        for layout in FORMATS
        for shape in shapes()
    ]


def _time(
    shape: Shape,
    dtype: torch.dtype,
    rounded: bool,
    layout: torch.memory_format,
    device: torch.device,
) -> dict[str, float]:
    random = partial(torch.randn, device=device, dtype=dtype)
    images = shape.rows, shape.in_channels, shape.side, shape.side
    weights = shape.out_channels, shape.in_channels, *[shape.kernel] * 2
    x = random(images).to(memory_format=layout)
    w = (random(weights) / weights[1] ** 0.5).to(memory_format=layout)
    padding = shape.kernel // 2
    options = [shape.stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1

    def forward() -> Tensor:
        return torch.ops.aten.convolution(x, w, None, *options)

    def backward() -> Any:
        return torch.ops.aten.convolution_backward(
            gradient, x, w, None, *options, [True, True, False]
        )

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=rounded):
        y = forward()
        gradient = torch.randn_like(y)
        return {
            "flops": 2 * y.numel() * weights[1] * shape.kernel**2,
            "forward_seconds": seconds_of(forward),
            "backward_seconds": seconds_of(backward),
        }
