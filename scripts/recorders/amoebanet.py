"""AmoebaNet-D, a network that a search made: a row of cells to be cut.

A cell takes the outputs of the two cells before it, makes five sums of two
operations each, and joins some of them. So a cut through the row passes two
tensors: what the cell has made, and the newer of those it was given::

    (newer, older) -> cell -> (made, newer) -> cell -> ...
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

States = tuple[Tensor, Tensor]


class Genotype(NamedTuple):
    """How a cell is made up: its tensors are two inputs and five sums.

    Attributes:
        operations: Two for each sum, in order: the number of the tensor that
            is taken, 0 for the newer input, and what is done with it.
        joined: The tensors that are joined to what the cell gives.
    """

    operations: tuple[tuple[int, str], ...]
    joined: tuple[int, ...]


def _genotype(text: str, joined: tuple[int, ...]) -> Genotype:
    """Read a genotype: a line for each sum, such as "0 1x1 + 1 none"."""
    parts = text.replace("+", " ").split()
    sources = map(int, parts[::2])
    return Genotype(tuple(zip(sources, parts[1::2])), joined)


NORMAL = _genotype(
    """
    1 1x1        + 1 average3
    1 none       + 0 1x7-7x1
    0 1x1        + 0 1x7-7x1
    2 average3   + 2 none
    1 average3   + 5 1x1
    """,
    joined=(0, 3, 4, 6),
)
REDUCTION = _genotype(
    """
    0 max2       + 0 average3
    2 none       + 1 3x3
    2 1x7-7x1    + 2 average3
    3 none       + 1 max2
    2 average3   + 3 1x1
    """,
    joined=(4, 5, 6),
)


def _convolution(
    in_channels: int, out_channels: int, **options: Any
) -> list[nn.Module]:
    """Return ReLU, convolution and batch norm, in this order."""
    return [
        nn.ReLU(),
        nn.Conv2d(in_channels, out_channels, bias=False, **options),
        nn.BatchNorm2d(out_channels),
    ]


def _narrowed(channels: int, *middle: dict[str, Any]) -> nn.Module:
    """Return convolutions on a quarter of the channels, to there and back."""
    few = channels // 4
    return nn.Sequential(
        *_convolution(channels, few, kernel_size=1),
        *(m for options in middle for m in _convolution(few, few, **options)),
        *_convolution(few, channels, kernel_size=1),
    )


def _one(channels: int, stride: int) -> nn.Module:
    options = {"kernel_size": 1, "stride": stride}
    return nn.Sequential(*_convolution(channels, channels, **options))


def _three(channels: int, stride: int) -> nn.Module:
    middle = {"kernel_size": 3, "padding": 1, "stride": stride}
    return _narrowed(channels, middle)


def _seven(channels: int, stride: int) -> nn.Module:
    row = {"kernel_size": (1, 7), "padding": (0, 3), "stride": (1, stride)}
    column = {"kernel_size": (7, 1), "padding": (3, 0), "stride": (stride, 1)}
    return _narrowed(channels, row, column)


# The genotype takes the maximum of 3×3; the program whose times were
# published averages there, and so does this.
def _average(channels: int, stride: int) -> nn.Module:
    return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)


OPERATIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "none": lambda channels, stride: nn.Identity(),
    "1x1": _one,
    "3x3": _three,
    "1x7-7x1": _seven,
    "average3": _average,
    "max2": lambda channels, stride: nn.MaxPool2d(2, stride),
}


class HalfSize(nn.Module):
    """Halve the size of images: two convolutions, one a pixel further on."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        halves = (out_channels // 2, out_channels - out_channels // 2)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(in_channels, half, 1, stride=2, bias=False)
            for half in halves
        )
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, X: Tensor) -> Tensor:
        """Map shape (b, in, h, w) to (b, out, h/2, w/2)."""
        X = X.relu()
        moved = nn.functional.pad(X[:, :, 1:, 1:], (0, 1, 0, 1))
        here, there = self.convolutions
        made: Tensor = self.norm(torch.cat([here(X), there(moved)], dim=1))
        return made


class Cell(nn.Module):
    """A cell of AmoebaNet-D.

    Args:
        newer: The channels of the newer input.
        older: The channels of the older one.
        channels: Those inside; it gives so many for each tensor joined.
        reduces: Whether it halves the size of images.
        older_is_larger: Whether the older input has images of twice the size.
    """

    def __init__(
        self,
        newer: int,
        older: int,
        channels: int,
        reduces: bool,
        older_is_larger: bool,
    ) -> None:
        super().__init__()
        self.genotype = REDUCTION if reduces else NORMAL
        one = {"kernel_size": 1}
        self.newer = nn.Sequential(*_convolution(newer, channels, **one))
        self.older: nn.Module = nn.Identity()
        if older_is_larger:
            self.older = HalfSize(older, channels)
        elif older != channels:
            self.older = nn.Sequential(*_convolution(older, channels, **one))
        self.operations = nn.ModuleList(
            OPERATIONS[name](channels, 2 if reduces and source < 2 else 1)
            for source, name in self.genotype.operations
        )

    def forward(self, states: Tensor | States) -> States:
        """Map the newer and the older input to the output and the newer.

        Args:
            states: Two tensors, shapes (b, newer, h, w) and (b, older, h, w),
                the older one 2h × 2w if it is larger; or one for both.
        """
        newer, older = states if isinstance(states, tuple) else (states,) * 2
        tensors = [self.newer(newer), self.older(older)]
        summands: list[Tensor] = []
        for operation, (source, _) in zip(
            self.operations, self.genotype.operations
        ):
            summands.append(operation(tensors[source]))
            if len(summands) % 2 == 0:
                tensors.append(summands[-2] + summands[-1])
        made = torch.cat([tensors[i] for i in self.genotype.joined], dim=1)
        return made, newer


class Classifier(nn.Module):
    """Average over the image, then one dense layer."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.dense = nn.Linear(in_channels, num_classes)

    def forward(self, states: States) -> Tensor:
        """Map the newer state, shape (b, c, h, w), to (b, num_classes)."""
        scores: Tensor = self.dense(states[0].mean(dim=(2, 3)))
        return scores


def amoebanet_d(
    num_layers: int = 18, num_filters: int = 256, num_classes: int = 1000
) -> nn.Sequential:
    """Return AmoebaNet-D, to be cut anywhere between its layers.

    A stem halves images three times. Then there are three rows of normal
    cells, each of a third of the layers. Between two rows a cell halves images
    and doubles channels.

    Args:
        num_layers: The number of normal cells, L.
        num_filters: A measure of width, D: 4 times the channels of the stem.
        num_classes: The number of scores.

    Returns:
        Layers that take shape (b, 3, h, w) and give (b, num_classes); those
        between take and give pairs of tensors. It has num_layers + 6 of them.

    Raises:
        ValueError: three does not divide the layers, or 16 the filters.

    Source:
        kakaobrain/torchgpipe, benchmarks/models/amoebanet, for the genotype
        and the widths.
    """
    if num_layers % 3 or num_filters % 16:
        raise ValueError(
            "layers come in threes, filters in sixteens (num_layers: "
            f"{num_layers}, num_filters: {num_filters})"
        )
    row = [False] * (num_layers // 3)
    kinds = [True, True, *row, True, *row, True, *row]
    channels = newer = older = num_filters // 4
    stem = nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels),
    )
    layers: list[nn.Module] = [stem]
    reduced = False
    for reduces in kinds:
        channels *= 2 if reduces else 1
        cell = Cell(newer, older, channels, reduces, reduced)
        layers.append(cell)
        newer, older = channels * len(cell.genotype.joined), newer
        reduced = reduces
    return nn.Sequential(*layers, Classifier(newer, num_classes))
