"""Lanes: what devices have or do, from left to right, and what is sent.

A lane belongs to a device, a host or a link. Its blocks stand in columns::

                   column 0    column 1      column 2
    device 0      [images 0]  [gradient 0]  [update]
                                   ↕ summed
    device 1      [images 1]  [gradient 1]  [update]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpbook.common.matrices import BOLD, DASHES, GROUND, heading, panel
from dpbook.common.plots import COLOURS
from dpkit.sim.timeline.drawing import (
    INK,
    QUIET,
    Drawing,
    box,
    line,
    number,
    text,
)

WIDTH = 390.0  # of a picture, in pixels
EDGE = 8.0  # between the blocks and the edges of the lane
LINE = 15.0  # from one line of a label to the next
BOLD_LETTER = 8.0  # the width to leave for a letter of a name


@dataclass(frozen=True)
class Block:
    """What a lane has or does, in a word or two, and the columns it takes."""

    label: str  # in lines
    start: float  # the first column, from 0
    length: float = 1  # in columns
    is_idle: bool = False  # drawn with dashes: it waits


@dataclass(frozen=True)
class Lane:
    """A device, a host or a link, with its blocks."""

    name: str  # in lines
    blocks: Sequence[Block]
    colour: str = QUIET


@dataclass(frozen=True)
class Arrow:
    """An arrow from a lane to another: each end is a lane and a column."""

    source: tuple[int, float]
    target: tuple[int, float]
    label: str = ""  # next to an upright arrow
    both: bool = False  # whether it has two heads


def device(rank: int, *labels: str, name: str = "device") -> Lane:
    """Return the lane of a device, with a block in each column.

    Args:
        rank: Its number, which gives it its colour.
        labels: What stands in column 0, 1 and so on; "" leaves it empty.
        name: What stands before its number.

    Example:
        >>> [block.start for block in device(0, "images", "", "sum").blocks]
        [0, 2]
    """
    blocks = [Block(label, at) for at, label in enumerate(labels) if label]
    return Lane(f"{name} {rank}", blocks, COLOURS[rank % len(COLOURS)])


@dataclass(frozen=True)
class Places:
    """Where columns and lanes lie in a picture, in pixels."""

    width: float  # of the picture
    first: float  # where column 0 begins; the names of lanes stand before
    column: float  # the width of a column
    top: float  # of the first lane
    lane: float  # the height of a lane
    gap: float  # between lanes

    def left(self, column: float) -> float:
        """Return where a column begins."""
        return self.first + self.column * column

    def middle(self, column: float) -> float:
        """Return the middle of a column."""
        return self.left(column + 0.5)

    def above(self, lane: int) -> float:
        """Return the upper edge of a lane."""
        return self.top + lane * (self.lane + self.gap)

    def below(self, lane: int) -> float:
        """Return the lower edge of a lane."""
        return self.above(lane) + self.lane


def draw_lanes(
    name: str,
    lanes: Sequence[Lane],
    sent: Sequence[Arrow] = (),
    *,
    description: str = "",
    cut: str = "",
    width: float = WIDTH,
    num_columns: float = 0,
) -> Drawing:
    """Draw lanes below each other, and arrows between their blocks.

    Args:
        name: What stands above the picture.
        lanes: From above.
        sent: The arrows. One within a column is upright, from lane to lane;
            any other leads from the end of a block to the beginning of
            another.
        description: What the picture shows, for those who do not see it.
        cut: More words below the name.
        width: In pixels. Letters have 12.5, so on a telephone, which has 356
            pixels for a picture, those of 390 have eleven.
        num_columns: How many there are at least, also if they are empty.

    Example:
        >>> lanes = device(0, "x", "h"), device(1, "", "h")
        >>> draw_lanes("A cut", lanes, [Arrow((0, 1), (1, 1))],
        ...            description="h is sent.")
        <drawing: A cut. h is sent.>
    """
    places = _places(lanes, sent, width, num_columns, top=42 if cut else 26)
    parts = [*heading(width, name, cut)]
    for at, lane in enumerate(lanes):
        parts += _lane(lane, at, places)
    for one in sent:
        parts += _sent(one, places)
    height = places.below(len(lanes) - 1) + 2
    return panel(parts, width, height, f"{name}. {description}")


def _places(
    lanes: Sequence[Lane],
    sent: Sequence[Arrow],
    width: float,
    num_columns: float,
    top: float,
) -> Places:
    """Return where columns and lanes lie, so that all words have room."""
    blocks = [block for lane in lanes for block in lane.blocks]
    names = [lane.name for lane in lanes]
    longest = max(len(line) for name in names for line in name.split("\n"))
    first = EDGE + BOLD_LETTER * longest + 6
    ends = [block.start + block.length for block in blocks]
    texts = [*names, *(block.label for block in blocks)]
    lines = max(len(some.split("\n")) for some in texts)
    has_labels = any(one.label for one in sent)
    return Places(
        width=width,
        first=first,
        column=(width - first - EDGE) / max(num_columns, *ends),
        top=top,
        lane=LINE * lines + 10 + 2 * EDGE,
        gap=26.0 if has_labels else 16.0 if sent else 6.0,
    )


def _lane(lane: Lane, at: int, places: Places) -> Iterator[str]:
    top = places.above(at)
    middle = top + places.lane / 2
    yield box(
        2, top, places.width - 4, places.lane, fill=lane.colour, more=GROUND
    )
    bold = f'{BOLD} fill="{lane.colour}"'
    yield from _lines(lane.name, EDGE, middle, "start", bold)
    for block in lane.blocks:
        x = places.left(block.start) + 2
        width = places.column * block.length - 4
        edge = f' rx="3" stroke="{lane.colour}"'
        if block.is_idle:
            edge += DASHES
        fill = "none" if block.is_idle else "#ffffff"
        yield box(
            x, top + EDGE, width, places.lane - 2 * EDGE, fill=fill, more=edge
        )
        yield from _lines(block.label, x + width / 2, middle, "middle")


def _lines(
    label: str, x: float, middle: float, anchor: str, more: str = ""
) -> Iterator[str]:
    """Write lines of words, with their middle at a height."""
    lines = label.split("\n") if label else []
    first = middle + 4.5 - LINE * (len(lines) - 1) / 2
    for row, part in enumerate(lines):
        yield text(x, first + LINE * row, part, anchor=anchor, more=more)


def _sent(sent: Arrow, places: Places) -> Iterator[str]:
    (source, start), (target, end) = sent.source, sent.target
    upright = start == end
    # Upright arrows go from lane to lane, others from block to block.
    inner = -3 if upright else EDGE
    if target > source:
        y1 = places.below(source) - inner
        y2 = places.above(target) + inner
    else:
        y1 = places.above(source) + inner
        y2 = places.below(target) - inner
    x1 = places.middle(start) if upright else places.left(start + 1) - 4
    x2 = places.middle(end) if upright else places.left(end) + 14
    yield from _arrow(x1, y1, x2, y2, both=sent.both)
    if not sent.label:
        return
    at = (y1 + y2) / 2 + 4.5
    if x1 + 8 + 6.5 * len(sent.label) < places.width:
        yield text(x1 + 8, at, sent.label)
    else:
        yield text(x1 - 8, at, sent.label, anchor="end")


def _arrow(
    x1: float, y1: float, x2: float, y2: float, *, both: bool
) -> Iterator[str]:
    """Draw a straight arrow, with a head at its end or at both ends."""
    yield line(x1, y1, x2, y2, colour=INK, more=' stroke-width="1.6"')
    degrees = math.degrees(math.atan2(y2 - y1, x2 - x1))
    heads = [(x2, y2, degrees)]
    if both:
        heads.append((x1, y1, degrees + 180))
    for x, y, turned in heads:
        where = f"translate({number(x)} {number(y)}) rotate({number(turned)})"
        yield f'<path d="M0 0l-7 4.5v-9z" fill="{INK}" transform="{where}"/>'
