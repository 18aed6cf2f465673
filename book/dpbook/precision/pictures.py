"""Figures of the chapter on rounding and randomness."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes

from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import Picture
from dpkit.sim.timeline.drawing import Drawing

NUMBERS = (256, 1, 1, 1)  # of each device


def plot_distances(distances: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far apart pairs of runs are after each step."""

    def draw(ax: Axes) -> None:
        for name, found in distances.items():
            ax.plot(range(1, len(found) + 1), found, label=name)
        ax.set(xlabel="step", ylabel="largest difference")
        ax.set(yscale="log", xlim=0)
        ax.legend(loc="best")

    names = ", ".join(distances)
    return Picture(draw, f"distance of two runs by step: {names}")


def draw_orders() -> Panels:
    """Draw how four devices add up numbers of bfloat16, in two orders.

    Example:
        >>> draw_orders().pictures[1].title[-34:]
        'added in pairs first: 256, 2, 258.'
    """
    return Panels([_one_by_one(), _in_pairs()], in_a_row=2, width=20)


def _one_by_one() -> Drawing:
    """Draw device 0, which adds the number of one device after another."""
    sums = [first := NUMBERS[0]]
    for number in NUMBERS[1:]:
        sums.append(first := rounded_sum(first, number))
    lanes = [device(0, *map(str, sums))]
    lanes += [device(rank, str(NUMBERS[rank])) for rank in (1, 2, 3)]
    sent = [Arrow((rank, 0), (0, rank)) for rank in (1, 2, 3)]
    description = f"Device 0 adds the others one by one: {_listed(sums)}."
    cut = "one after another"
    return draw_lanes(
        "A star", lanes, sent, description=description, cut=cut, width=300
    )


def _in_pairs() -> Drawing:
    """Draw two pairs of devices, which add before their sums are added."""
    a, b, c, d = NUMBERS
    first, second = rounded_sum(a, b), rounded_sum(c, d)
    total = rounded_sum(first, second)
    lanes = [
        device(0, str(a), str(first), str(total)),
        device(1, str(b)),
        device(2, str(c), str(second)),
        device(3, str(d)),
    ]
    sent = [
        Arrow((1, 0), (0, 1)),
        Arrow((3, 0), (2, 1)),
        Arrow((2, 1), (0, 2)),
    ]
    description = (
        f"Numbers are added in pairs first: {_listed([first, second, total])}."
    )
    return draw_lanes(
        "A tree",
        lanes,
        sent,
        description=description,
        cut="pairs first",
        width=300,
    )


def rounded_sum(a: int, b: int) -> int:
    """Return a sum as bfloat16 has it.

    Example:
        >>> rounded_sum(256, 1), rounded_sum(256, 2)
        (256, 258)
    """
    return int(torch.tensor(a, dtype=torch.bfloat16) + b)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
