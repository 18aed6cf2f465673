"""The map of the fastest way to split, over rows and width."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from math import log2

from dpbook.explore.curves import LEFT, RIGHT, Axis, draw_grid
from dpbook.formulas.splits import ONE_DEVICE, WAYS, seconds_by_way
from dpkit.theory.hardware.clusters import Cluster, cluster
from dpkit.theory.timeline import drawing
from dpkit.theory.timeline.drawing import INK, WIDTH

CHOICES = (ONE_DEVICE, *WAYS)
GROUNDS = dict(zip(CHOICES, ("#eef0f3", "#cfe0fd", "#f6dfbf", "#c3ead9")))
MARKS = dict(zip(CHOICES, "●■◆▲"))
TOP = 40.0
BOTTOM = 320.0
# Columns of a quarter of a doubling, rows of a half.
ROWS = [2 ** (i / 4) for i in range(4 * 5, 4 * 17 + 1)]
WIDTHS = [2 ** (i / 2) for i in range(2 * 7, 2 * 14 + 1)]
X = Axis(
    "rows of the batch", "{:,.0f}".format, [2**i for i in range(5, 18, 3)]
)
Y = Axis("width of a layer", "{:,.0f}".format, [2**i for i in range(7, 15)])


def winner(rows: int, width: int, depth: int, cluster: Cluster) -> str:
    """Return the way whose step is estimated to be the fastest.

    Args:
        rows: The examples of a batch, over all devices.
        width: The values that go into each layer and come out of it.
        depth: The number of layers.
        cluster: The devices and their links.

    Example:
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> winner(4096, 4096, 8, cluster(4, "v100", "pcie3"))
        'network'
    """
    times = seconds_by_way(
        rows=rows, width=width, depth=depth, cluster=cluster
    )
    return min(times, key=lambda way: times[way])


def stretches(length: int, ask: Callable[[int], str]) -> list[tuple[str, int]]:
    """Return the answers along a line, and where each of them ends.

    Every fourth place is asked, and places between two that differ.

    Example:
        >>> stretches(9, lambda i: "few" if i < 7 else "many")
        [('few', 7), ('many', 9)]
    """
    known = cache(ask)

    def between(low: int, high: int) -> list[str]:
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


Regions = Sequence[tuple[str, float, float, float]]  # way, width, rows


@cache
def regions(
    num_devices: int, accelerator: str, link: str, depth: int
) -> Regions:
    """Return which way is the fastest, width by width.

    It is computed once for the same arguments.

    Args:
        num_devices: How many there are.
        accelerator: A preset.
        link: A preset.
        depth: The number of layers.

    Returns:
        Tuples of a way, a width, and the first and the last number of rows for
        which the way is the fastest at that width.
    """
    machine = cluster(num_devices, accelerator, link)
    found = []
    for width in map(round, WIDTHS):

        def ask(i: int, width: int = width) -> str:
            return winner(
                rows=round(ROWS[i]), width=width, depth=depth, cluster=machine
            )

        start = 0
        for way, end in stretches(len(ROWS), ask):
            last = ROWS[min(end, len(ROWS) - 1)]
            found.append((way, width, ROWS[start], last))
            start = end
    return found


def draw_map(
    machine: Cluster,
    depth: int,
    here: tuple[float, float] | None = None,
    marks: Mapping[tuple[float, float], str] | None = None,
) -> drawing.Drawing:
    """Draw which way is the fastest, by rows and width, for known hardware.

    Args:
        machine: Devices of presets by their names.
        depth: How many layers there are.
        here: Rows and width of the reader.
        marks: Rows and width -> the way that won where it was simulated.
    """
    where = machine.accelerator.name, machine.link.name
    found = regions(machine.num_devices, *where, depth)
    taken = [*(marks or ()), *([here] if here else ())]
    parts = [_ground(*stretch) for stretch in found]
    parts += draw_grid(X, Y, TOP, BOTTOM)
    ways = [way for way in CHOICES if way in {name for name, *_ in found}]
    parts += [_name(way, found, taken) for way in ways]
    for place, way in (marks or {}).items():
        parts.append(_words(*place, MARKS[way], 16))
    if here:
        x, y = _at(*here)
        ring = f'cx="{drawing.number(x)}" cy="{drawing.number(y)}" r="8"'
        look = f'fill="none" stroke="{INK}" stroke-width="3"'
        parts.append(f"<circle {ring} {look}/>")
    title = f"the fastest way by rows and width: {machine.name}"
    return drawing.page(parts, BOTTOM + 46, title)


def _at(rows: float, width: float) -> tuple[float, float]:
    return X.place(rows, LEFT, WIDTH - RIGHT), Y.place(width, BOTTOM, TOP)


def _ground(way: str, width: float, low: float, high: float) -> str:
    """Colour a strip of the map: at one width, a way is fastest there.

    It reaches half way to the strips of the widths above and below.

    Args:
        way: The fastest way to split.
        width: That of the layers.
        low: The rows of the batch at its left end.
        high: The rows at its right end.

    Returns:
        A rectangle, as SVG text.
    """
    x, y = _at(low, min(width * 2**0.25, WIDTHS[-1]))
    end, bottom = _at(high, max(width / 2**0.25, WIDTHS[0]))
    return drawing.box(x, y, end - x, bottom - y, GROUNDS[way])


def _name(
    way: str, found: Regions, taken: Sequence[tuple[float, float]]
) -> str:
    """Write a name in a wide row of its region, away from what is drawn."""
    rows = [r for r in found if r[0] == way]
    enough = max(high / low for _, _, low, high in rows) ** 0.7
    inner = [r for r in rows if WIDTHS[0] < r[1] < WIDTHS[-1]] or rows
    long = [r for r in inner if r[3] / r[2] >= enough] or inner

    def room(row: tuple[str, float, float, float]) -> tuple[float, float]:
        """Return how far other things are, and how far from the middle."""
        far = [abs(log2(row[1] / width)) for _, width in taken]
        return min([2.0, *far]), -abs(long.index(row) - len(long) // 2)

    _, width, low, high = max(long, key=room)
    return _words((low * high) ** 0.5, width, way, 13)


def _words(rows: float, width: float, words: str, size: int) -> str:
    x, y = _at(rows, width)
    more = f' font-size="{size}"'
    return drawing.text(x, y + size / 3, words, "middle", more)
