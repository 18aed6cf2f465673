"""Devices as bands, and what each has, as cells: pictures of a moment.

Each device has a band in its colour, with its name and blocks of cells. A
filled cell lies on the device, in the colour of the device that it comes from,
and a dashed cell does not. Between the bands stands what is sent::

    device 0   ####   0 1 2
                 |
                 v
    device 1   ....   3 4 5

Pictures side by side are moments, one after another (``matrices.Panels``).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpbook.common.matrices import BOLD, GROUND, arrow, heading, panel
from dpbook.common.plots import COLOURS
from dpkit.sim.timeline.drawing import INK, QUIET, Drawing, box, line, text

WIDTH = 240.0  # of a picture
TOP = 60.0  # of the first band
GAP = 28.0  # between bands
MARGIN = 6.0  # above and below the cells of a band
DASHED = f' stroke="{QUIET}" stroke-dasharray="3 2"'


class Cell(NamedTuple):
    """A cell: whose colour it has (None: it is not there), and its label."""

    home: int | None
    label: str = ""


Cells = Sequence[Sequence[Cell]]  # in rows


class Column(NamedTuple):
    """Where a block stands in all bands, in pixels, and its heading."""

    heading: str
    x: float
    width: float


class Device(NamedTuple):
    """What stands in a band: a name, and a block for each column."""

    name: str
    home: int | None  # its colour; None: grey
    blocks: Sequence[Cells]  # an empty one is not drawn


class Sent(NamedTuple):
    """An arrow between two bands that follow each other, and its label."""

    above: int  # the number of the band above it
    x: float
    ends: str  # with a head: "up", "down" or "both"
    label: str = ""


def grid(rows: Sequence[str], home: int) -> Cells:
    """Return a block from letters: "#" is there, and "." is not.

    Example:
        >>> grid(["#."], home=1)
        [[Cell(home=1, label=''), Cell(home=None, label='')]]
    """
    filled = {"#": Cell(home), ".": Cell(None)}
    return [[filled[letter] for letter in row] for row in rows]


def named(labels: Sequence[str], home: int | None) -> Cells:
    """Return a block of one row, with a label in each cell."""
    return [[Cell(home, label) for label in labels]]


def colour_of(home: int | None) -> str:
    """Return the colour of a device; grey for what belongs to none."""
    return QUIET if home is None else COLOURS[home % len(COLOURS)]


def draw_block(
    block: Cells, x: float, y: float, *, width: float, cell_height: float
) -> Iterator[str]:
    """Draw a block of cells, as SVG text, in pixels."""
    if block:
        yield box(
            x, y, width, cell_height * len(block), fill="none", more=DASHED
        )
    for i, row in enumerate(block):
        wide = width / len(row)
        for j, cell in enumerate(row):
            left = x + wide * j
            top = y + cell_height * i
            if cell.home is not None:
                colour = colour_of(cell.home)
                edge = ' stroke="#ffffff"'
                yield box(left, top, wide, cell_height, fill=colour, more=edge)
            if cell.label:
                ink = QUIET if cell.home is None else "#ffffff"
                at = left + wide / 2, top + cell_height / 2 + 4.5
                yield text(
                    *at, cell.label, anchor="middle", more=f' fill="{ink}"'
                )


def draw_moment(
    title: str,
    when: str,
    *,
    columns: Sequence[Column],
    devices: Sequence[Device],
    sent: Sequence[Sent],
    description: str,
    cell_height: float = 20.0,
    back_to_first: bool = False,
) -> Drawing:
    """Draw who has what at a moment, and what is sent.

    Args:
        title: Its first line.
        when: Its second line.
        columns: Where the blocks of a device stand.
        devices: From above.
        sent: The arrows between them.
        description: What the picture shows, for those who do not see it.
        cell_height: In pixels.
        back_to_first: Whether the last device also sends to the first one.
    """
    rows = max(len(block) for device in devices for block in device.blocks)
    tall = rows * cell_height + 2 * MARGIN
    parts = [*heading(WIDTH, title, when)]
    for column in columns:
        middle = column.x + column.width / 2
        parts.append(text(middle, TOP - 6, column.heading, anchor="middle"))
    for i, device in enumerate(devices):
        top = TOP + i * (tall + GAP)
        parts += _band(
            device, columns, top=top, height=tall, cell_height=cell_height
        )
    for message in sent:
        parts += _message(message, TOP + message.above * (tall + GAP) + tall)
    if back_to_first:
        low = TOP + (len(devices) - 1) * (tall + GAP) + tall / 2
        right = columns[-1].x + columns[-1].width
        parts += _arrow_back(right + 3, top=TOP + tall / 2, bottom=low)
    height = TOP + len(devices) * (tall + GAP) - GAP + 2
    return panel(parts, WIDTH, height, f"{title}, {when}. {description}")


def _band(
    device: Device,
    columns: Sequence[Column],
    *,
    top: float,
    height: float,
    cell_height: float,
) -> Iterator[str]:
    """Draw the band of a device, with its name and its blocks."""
    colour = colour_of(device.home)
    yield box(2, top, WIDTH - 4, height, fill=colour, more=GROUND)
    ink = f'{BOLD} fill="{colour}"'
    yield text(10, top + height / 2 + 4.5, device.name, more=ink)
    for column, block in zip(columns, device.blocks):
        y = top + (height - cell_height * len(block)) / 2
        yield from draw_block(
            block, column.x, y, width=column.width, cell_height=cell_height
        )


def _message(message: Sent, low: float) -> Iterator[str]:
    """Draw an arrow in the gap below a band, which ends at ``low``."""
    yield from arrow(message.x, low + 3, low + GAP - 3, message.ends)
    if message.label:
        yield text(message.x + 10, low + GAP / 2 + 4.5, message.label)


def _arrow_back(x: float, top: float, bottom: float) -> Iterator[str]:
    """Draw an arrow up, around the right of what stands between its ends."""
    right = WIDTH - 10
    way = f"M{x:g} {bottom:g}H{right:g}V{top:g}H{x + 6:g}"
    yield f'<path d="{way}" fill="none" stroke="{INK}" stroke-width="1.6"/>'
    yield f'<path d="M{x:g} {top:g}l7 4.5v-9z" fill="{INK}"/>'


def level_arrow(left: float, right: float, y: float) -> Iterator[str]:
    """Draw a level arrow with a head at both ends, as SVG text, in pixels."""
    yield line(
        left + 2, y, right - 2, y, colour=INK, more=' stroke-width="1.6"'
    )
    for tip, back in (left, 7), (right, -7):
        corners = f"M{tip:g} {y:g}l{back} 4.5v-9z"
        yield f'<path d="{corners}" fill="{INK}"/>'
