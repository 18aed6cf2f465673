"""Matrices as rectangles: what of each a device has, and what is sent.

A network of two layers computes h = relu(x W) and y = h V. Each device has
a band of five rectangles. What it has is filled, in the colour of the device,
and what it has not is dashed. A cut by columns leaves some columns, one by
rows some rows::

    whole        columns 0 and 1 of 4      rows 0 and 1 of 4
    ########     ####- - +                 ########
    ########     ####    |                 ########
    ########     ####    |                 |      |
    ########     ####- - +                 + - - -+
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpbook.common.plots import COLOURS
from dpkit.sim.timeline.drawing import (
    INK,
    QUIET,
    Drawing,
    box,
    escape,
    line,
    number,
    quiet_text,
    text,
)

DASHES = ' stroke-dasharray="3 2"'
GROUND = ' rx="6" fill-opacity="0.1"'
BOLD = ' font-weight="600"'
DEVICE_Y, LETTER_Y, SHAPE_Y = 18.0, 38.0, 45.0  # in a band, from above
BELOW = 22.0  # a rectangle, for its shape
LARGE = f' font-size="17"{BOLD}'
SIGNS = "·→·→"  # x times W gives h, and h times V gives y
ITALIC = ' font-style="italic"'


@dataclass(frozen=True)
class Part:
    """What a device has of a matrix: the columns and the rows from, to."""

    columns: tuple[int, int]
    rows: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


@dataclass(frozen=True)
class Matrix:
    """A matrix in all bands: its name, its size, and where it stands."""

    name: str
    num_rows: int
    num_columns: int
    x: float  # pixels, of its left side
    unit: float  # pixels, of a row or column

    @property
    def width(self) -> float:
        """In pixels."""
        return self.unit * self.num_columns

    @property
    def height(self) -> float:
        """In pixels."""
        return self.unit * self.num_rows

    @property
    def middle(self) -> float:
        """How far its middle is from the left, in pixels."""
        return self.x + self.width / 2

    @property
    def whole(self) -> Part:
        """All of it."""
        return Part((0, self.num_columns), (0, self.num_rows))

    def columns(self, start: int, end: int) -> Part:
        """Return all rows of some columns."""
        return Part((start, end), (0, self.num_rows))

    def rows(self, start: int, end: int) -> Part:
        """Return all columns of some rows."""
        return Part((0, self.num_columns), (start, end))


# What a device has of each matrix; None: nothing.
Held = Sequence[tuple[Matrix, Part | None]]


def in_a_line(
    sizes: Mapping[str, tuple[int, int]], unit: float, width: float
) -> list[Matrix]:
    """Return matrices side by side, with equal gaps and a margin of 14.

    Args:
        sizes: Name -> the number of rows and of columns.
        unit: The pixels of a row or column.
        width: That of the picture, in pixels.
    """
    # Widths of 20 and 40 on 120 pixels: 120 - 28 - 60 = 32 are one gap.
    needed = unit * sum(columns for _, columns in sizes.values())
    gap = (width - 28 - needed) / (len(sizes) - 1)
    placed = []
    x = 14.0
    for name, (rows, columns) in sizes.items():
        placed.append(
            Matrix(name, num_rows=rows, num_columns=columns, x=x, unit=unit)
        )
        x += unit * columns + gap
    return placed


def band(
    device: int,
    y: float,
    width: float,
    held: Held,
    with_shapes: bool = False,
) -> Iterator[str]:
    """Draw what a device has of each matrix, as SVG text.

    Between matrices that it has stands what it computes.

    Args:
        device: Its number.
        y: The upper edge, in pixels.
        width: That of the picture, in pixels.
        held: What the device has of x, of the first weights, and so on.
        with_shapes: Whether the shape of each part stands below it.
    """
    colour = COLOURS[device % len(COLOURS)]
    tallest = max(matrix.height for matrix, _ in held)
    height = band_height(held, with_shapes)
    yield box(2, y, width - 4, height, fill=colour, more=GROUND)
    bold = f'{BOLD} fill="{colour}"'
    yield text(14, y + DEVICE_Y, f"device {device}", more=bold)
    for matrix, part in held:
        top = y + SHAPE_Y + (tallest - matrix.height) / 2
        at = matrix.middle
        yield text(at, y + LETTER_Y, matrix.name, anchor="middle", more=ITALIC)
        yield from _matrix(matrix, part, top, colour)
        if part is not None and with_shapes:
            below = top + matrix.height + 18
            yield quiet_text(at, below, str(part.shape), anchor="middle")
    middle = y + SHAPE_Y + tallest / 2 + 4
    for (one, part), (other, next_part), sign in zip(held, held[1:], SIGNS):
        if part is not None and next_part is not None:
            x = (one.x + one.width + other.x) / 2
            yield text(x, middle + 1, sign, anchor="middle", more=LARGE)


def band_height(held: Held, with_shapes: bool = False) -> float:
    """Return the height of a band in pixels, from what it shows."""
    tallest = max(matrix.height for matrix, _ in held)
    return SHAPE_Y + tallest + 10 + BELOW * with_shapes


def _matrix(
    matrix: Matrix, part: Part | None, y: float, colour: str
) -> Iterator[str]:
    edge = f' stroke="{QUIET}"{DASHES}'
    yield box(matrix.x, y, matrix.width, matrix.height, fill="none", more=edge)
    if part is None:
        return
    (left, right), (top, bottom) = part.columns, part.rows
    x0, x1 = (matrix.x + matrix.unit * n for n in (left, right))
    y0, y1 = (y + matrix.unit * n for n in (top, bottom))
    yield box(x0, y0, x1 - x0, y1 - y0, fill=colour)
    thin = ' stroke-width="1" stroke-opacity="0.75"'
    if right - left < matrix.num_columns:
        for n in range(left + 1, right):
            x = matrix.x + matrix.unit * n
            yield line(x, y0, x, y1, colour="#ffffff", more=thin)
    if bottom - top < matrix.num_rows:
        for n in range(top + 1, bottom):
            at = y + matrix.unit * n
            yield line(x0, at, x1, at, colour="#ffffff", more=thin)


def arrow(x: float, top: float, bottom: float, ends: str) -> Iterator[str]:
    """Draw an upright arrow, as SVG text.

    Args:
        x: Where it is, in pixels.
        top: Its upper end, in pixels.
        bottom: Its lower end, in pixels.
        ends: Which of them have a head: "up", "down" or "both".
    """
    yield line(
        x, top + 2, x, bottom - 2, colour=INK, more=' stroke-width="1.6"'
    )
    for end, tip, back in ("up", top, 7), ("down", bottom, -7):
        if ends in (end, "both"):
            corners = f"M{number(x)} {number(tip)}l4.5 {back}h-9z"
            yield f'<path d="{corners}" fill="{INK}"/>'


def heading(width: float, title: str, below: str = "") -> Iterator[str]:
    """Write what stands above a picture: a title, and a quiet line below it.

    Args:
        width: That of the picture, in pixels.
        title: Its baseline is 15 pixels from above.
        below: Its baseline is 32 pixels from above.
    """
    yield text(
        width / 2, 15, title, anchor="middle", more=BOLD + ' font-size="14"'
    )
    if below:
        yield text(
            width / 2, 32, below, anchor="middle", more=f' fill="{QUIET}"'
        )


class Panels:
    """Pictures side by side, and below each other on a narrow page.

    Args:
        pictures: Each has its own text for those who see no pictures.
        in_a_row: How many stand side by side on a wide page, at most.
        width: How wide one is where all have room, in rem (16 pixels).
    """

    def __init__(
        self,
        pictures: Sequence[Drawing],
        in_a_row: int = 3,
        width: float = 16.0,
    ) -> None:
        self.pictures = pictures
        self.in_a_row = in_a_row
        self.width = width

    def __repr__(self) -> str:
        return "\n".join(f"<drawing: {p.title}>" for p in self.pictures)

    def _repr_html_(self) -> str:
        row = "display:flex;flex-wrap:wrap;justify-content:center;gap:0.75rem"
        row += f";max-width:{self.width * self.in_a_row:g}rem;margin:auto"
        least, most = self.width / 1.28, 1.5 * self.width
        one = f"flex:1 1 {least:g}rem;max-width:{most:g}rem"
        inner = "\n".join(
            f'<div style="{one}">{p.svg}</div>' for p in self.pictures
        )
        return f'<div class="panels" style="{row}">\n{inner}\n</div>'


def panel(
    parts: Sequence[str], width: float, height: float, title: str
) -> Drawing:
    """Put the parts of a picture on a white ground that grows with the page.

    Args:
        parts: SVG text each.
        width: In pixels, of which the page may make more or fewer.
        height: The same.
        title: What the picture shows, for those who do not see it.
    """
    body = "\n".join(parts)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {number(width)} {number(height)}" '
        f'style="display:block;width:100%;height:auto" role="img" '
        f'aria-label="{escape(title)}" font-size="12.5" fill="{INK}" '
        f'font-family="system-ui, -apple-system, sans-serif">\n'
        f'<rect width="{number(width)}" height="{number(height)}" '
        f'fill="#ffffff"/>\n{body}\n</svg>'
    )
    return Drawing(svg, title)
