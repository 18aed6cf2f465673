"""The map of the fastest way to split, over rows and width.

Where the fastest way does not fit into the memory of a device, the map is
hatched: there the time does not decide.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from math import log2
from typing import NamedTuple, TypeVar

from dpbook.explore.curves import LEFT, RIGHT, Axis, draw_grid
from dpbook.formulas.dense import SIZES
from dpbook.formulas.splits import (
    ONE_DEVICE,
    WAYS,
    Estimate,
    estimate,
)
from dpkit.sim.hardware import Cluster, cluster
from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.drawing import INK, QUIET, WIDTH

Answer = TypeVar("Answer")
CHOICES = (ONE_DEVICE, *WAYS)
GROUNDS = dict(zip(CHOICES, ("#eef0f3", "#cfe0fd", "#f6dfbf", "#c3ead9")))
MARKS = dict(zip(CHOICES, "●■◆▲"))
FULL = "does not fit: memory decides"
TOP = 40.0
BOTTOM = 320.0
# Columns of a quarter of a doubling, rows of a half.
ROWS = [2 ** (i / 4) for i in range(4 * 5, 4 * 17 + 1)]
WIDTHS = [2 ** (i / 2) for i in range(2 * 7, 2 * 14 + 1)]
X = Axis(
    "rows of the batch", "{:,.0f}".format, [2**i for i in range(5, 18, 3)]
)
Y = Axis("width of a layer", "{:,.0f}".format, [2**i for i in range(7, 15)])


def winner(
    rows: int,
    width: int,
    depth: int,
    cluster: Cluster,
    dtype: str = "float32",
) -> str:
    """Return the way whose step is estimated to be the fastest.

    Args:
        rows: The examples of a batch, over all devices.
        width: The values that go into each layer and come out of it.
        depth: The number of layers.
        cluster: The devices and their links.
        dtype: In what is computed and sent.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> winner(4096, 4096, 8, cluster(4, "v100", "pcie3"))
        'network'
    """

    def seconds(way: str) -> float:
        found = estimate(
            way,
            rows=rows,
            width=width,
            depth=depth,
            cluster=cluster,
            dtype=dtype,
        )
        return found.seconds

    return min(CHOICES, key=seconds)


def needed_bytes(found: Estimate, dtype: str) -> float:
    """Return what a device has to hold of parameters and activations.

    A parameter takes 16 bytes in training with Adam. In float32 it has its
    value, its gradient and two averages, of 4 bytes each; in 16 bits a value
    and a gradient of 2 bytes, and in float32 a copy and two averages.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> four = cluster(4, "v100", "nvlink2")
        >>> for dtype in ("float32", "float16"):
        ...     found = estimate("data", rows=4096, width=4096, depth=8,
        ...                      cluster=four, dtype=dtype)
        ...     print(f"{needed_bytes(found, dtype) / 1e9:.2f} GB")
        2.30 GB
        2.22 GB
    """
    return 16 / SIZES[dtype] * found.parameter_bytes + found.activation_bytes


def stretches(
    length: int, ask: Callable[[int], Answer]
) -> list[tuple[Answer, int]]:
    """Return the answers along a line, and where each of them ends.

    Every fourth place is asked, and places between two that differ.

    Example:
        >>> stretches(9, lambda i: "few" if i < 7 else "many")
        [('few', 7), ('many', 9)]
    """
    known = cache(ask)

    def between(low: int, high: int) -> list[Answer]:
        """Return the answers from ``low`` up to the one before ``high``."""
        if high - low == 1 or known(low) == known(high):
            return [known(low)] * (high - low)
        middle = (low + high) // 2
        return between(low, middle) + between(middle, high)

    # 9 places: it asks 0, 4, 8; between 4 and 8, which differ, 6 and 7.
    stops = [*range(0, length - 1, 4), length - 1]
    parts = [between(*ends) for ends in pairwise(stops)]
    answers = [answer for part in parts for answer in part] + [
        known(length - 1)
    ]
    found = []
    end = 0
    for answer, same in groupby(answers):
        end += len(list(same))
        found.append((answer, end))
    return found


class Region(NamedTuple):
    """A line of the map, along which one way is the fastest."""

    way: str
    width: float
    low: float  #: its first number of rows
    high: float  #: its last one
    fits: bool  #: whether the way fits into the memory of a device


Regions = Sequence[Region]


@cache
def regions(
    num_devices: int,
    accelerator: str,
    link: str,
    depth: int,
    dtype: str = "float32",
) -> Regions:
    """Return which way is the fastest, width by width.

    It is computed once for the same arguments.

    Args:
        num_devices: How many there are.
        accelerator: A preset.
        link: A preset.
        depth: The number of layers.
        dtype: In what is computed and sent.
    """
    machine = cluster(num_devices, accelerator, link)
    room = machine.accelerator.memory_bytes
    found = []
    for width in map(round, WIDTHS):

        def ask(i: int, width: int = width) -> tuple[str, bool]:
            rows = round(ROWS[i])
            way = winner(
                rows=rows,
                width=width,
                depth=depth,
                cluster=machine,
                dtype=dtype,
            )
            step = estimate(
                way,
                rows=rows,
                width=width,
                depth=depth,
                cluster=machine,
                dtype=dtype,
            )
            return way, needed_bytes(step, dtype) < room

        start = 0
        for (way, fits), end in stretches(len(ROWS), ask):
            last = ROWS[min(end, len(ROWS) - 1)]
            found.append(
                Region(way, width=width, low=ROWS[start], high=last, fits=fits)
            )
            start = end
    return found


def draw_map(
    machine: Cluster,
    depth: int,
    here: tuple[float, float] | None = None,
    marks: Mapping[tuple[float, float], str] | None = None,
    dtype: str = "float32",
) -> drawing.Drawing:
    """Draw which way is the fastest, by rows and width, for known hardware.

    Args:
        machine: Devices of presets by their names.
        depth: How many layers there are.
        here: Rows and width of the reader.
        marks: Rows and width -> the way that won where it was simulated.
        dtype: In what is computed and sent.
    """
    found = regions(
        machine.num_devices,
        accelerator=machine.accelerator.name,
        link=machine.link.name,
        depth=depth,
        dtype=dtype,
    )
    taken = [*(marks or ()), *([here] if here else ())]
    parts = [_ground(region, GROUNDS[region.way]) for region in found]
    full = [region for region in found if not region.fits]
    if full:
        parts.append(drawing.hatch("full", "none", stripe=QUIET))
        parts += [_ground(region, "url(#full)") for region in full]
    parts += draw_grid(X, Y, TOP, BOTTOM)
    for way in CHOICES:
        lines = [r for r in found if r.way == way and r.fits]
        if lines:
            parts.append(_name(way, lines, taken))
    if full:
        y = BOTTOM + 40
        parts.append(drawing.box(14, y - 12, 26, 14, fill="url(#full)"))
        parts.append(drawing.quiet_text(46, y, FULL))
    for point, way in (marks or {}).items():
        parts.append(_label(*point, MARKS[way], 16))
    if here:
        x, y = _at(*here)
        ring = f'cx="{drawing.number(x)}" cy="{drawing.number(y)}" r="8"'
        look = f'fill="none" stroke="{INK}" stroke-width="3"'
        parts.append(f"<circle {ring} {look}/>")
    title = f"the fastest way by rows and width: {machine.name}"
    if full:
        title += "; hatched where it does not fit into memory"
    return drawing.page(parts, BOTTOM + 46, title)


def _at(rows: float, width: float) -> tuple[float, float]:
    x = X.position(rows, LEFT, WIDTH - RIGHT)
    return x, Y.position(width, BOTTOM, TOP)


def _ground(region: Region, fill: str) -> str:
    """Colour a strip of the map: at one width, a way is fastest there.

    It reaches half way to the strips of the widths above and below.

    Args:
        region: The strip.
        fill: A colour, or a pattern.

    Returns:
        A rectangle, as SVG text.
    """
    _, width, low, high, _ = region
    x, y = _at(low, min(width * 2**0.25, WIDTHS[-1]))
    end, bottom = _at(high, max(width / 2**0.25, WIDTHS[0]))
    return drawing.box(x, y, end - x, bottom - y, fill=fill)


def _name(
    name: str, rows: Regions, taken: Sequence[tuple[float, float]]
) -> str:
    """Write a name in a wide row of a region, away from what is drawn."""
    enough = max(r.high / r.low for r in rows) ** 0.7
    inner = [r for r in rows if WIDTHS[0] < r.width < WIDTHS[-1]] or rows
    long = [r for r in inner if r.high / r.low >= enough] or inner

    def room(row: Region) -> tuple[float, float]:
        """Return how far other things are, and how far from the middle."""
        far = [abs(log2(row.width / width)) for _, width in taken]
        return min([2.0, *far]), -abs(long.index(row) - len(long) // 2)

    _, width, low, high, _ = max(long, key=room)
    return _label((low * high) ** 0.5, width, name, 13)


def _label(rows: float, width: float, label: str, size: int) -> str:
    x, y = _at(rows, width)
    more = f' font-size="{size}"'
    return drawing.text(x, y + size / 3, label, anchor="middle", more=more)
