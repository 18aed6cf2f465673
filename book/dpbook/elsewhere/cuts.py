"""How libraries cut the rows of a batch, as bars."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch.utils.data import DistributedSampler

from dpbook.common.plots import COLOURS, Picture


def by_tensor_split(num_rows: int, k: int) -> list[int]:
    """Return the rows per device: the first ones have one more.

    Example:
        >>> by_tensor_split(257, 5)
        [52, 52, 51, 51, 51]
    """
    return [len(part) for part in torch.arange(num_rows).tensor_split(k)]


def by_chunk(num_rows: int, k: int) -> list[int]:
    """Return the rows per device: all but the last have as many.

    Example:
        >>> by_chunk(6, 4)  # one device has nothing to do
        [2, 2, 2, 0]
    """
    parts = [len(part) for part in torch.arange(num_rows).chunk(k)]
    return parts + [0] * (k - len(parts))


def by_sampler(num_rows: int, k: int) -> list[int]:
    """Return the rows per device: all have as many, and some come twice.

    Example:
        >>> by_sampler(6, 4)
        [2, 2, 2, 2]
    """
    rows: Any = range(num_rows)
    return [len(DistributedSampler(rows, k, rank)) for rank in range(k)]


def plot_cuts(cuts: Mapping[str, Sequence[int]], right: int) -> Picture:
    """Draw the rows of each device, a bar for each way of cutting.

    ``right`` is the number of rows that there are; a way with more of them
    takes some twice.
    """

    def draw(ax: Axes) -> None:
        for y, rows in enumerate(cuts.values()):
            begin = 0
            for rank, size in enumerate(rows):
                colour = COLOURS[rank % len(COLOURS)]
                ax.barh(y, size, left=begin, color=colour, edgecolor="white")
                if size:
                    middle = begin + size / 2
                    ax.text(
                        middle,
                        y,
                        str(size),
                        color="white",
                        ha="center",
                        va="center",
                    )
                begin += size
        ax.axvline(right, color="black", ls=":", lw=1)
        ax.set_yticks(range(len(cuts)), list(cuts))
        ax.invert_yaxis()
        ax.set(xlabel="rows")

    return Picture(
        draw, "the rows of each device", (5.2, 0.55 * len(cuts) + 1)
    )
