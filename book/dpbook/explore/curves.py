"""Curves over a size: a logarithmic axis either way, or an even one."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.drawing import (
    AMBER,
    BLUE,
    GREEN,
    GRID,
    INK,
    LETTER,
    QUIET,
    VIOLET,
    WIDTH,
)

LEFT = 88
RIGHT = 24
# A colour and a pattern for each curve, so that either tells them apart.
LOOKS = (
    (BLUE, ""),
    (AMBER, "8 3"),
    (GREEN, "2 3"),
    (VIOLET, "10 3 2 3"),
    (QUIET, "5 5"),
    ("#be123c", "1 3"),
)
Curve = Sequence[tuple[float, float]]
FAINT = "#6b91ee"  # of the blue; on white its contrast is three to one


class Behind(NamedTuple):
    """A curve to compare with: its name, its points, the one to mark."""

    name: str
    curve: Curve
    mark: float


class Axis(NamedTuple):
    """An axis: what it shows, how it writes a value, where values stand."""

    name: str
    write: Callable[[float], str]
    ticks: Sequence[float]
    logarithmic: bool = True

    def position(self, value: float, start: float, end: float) -> float:
        """Return the pixel of a value, on an axis between two pixels."""
        first = self.ticks[0]
        last = self.ticks[-1]
        if self.logarithmic:
            value, first, last = map(math.log, (value, first, last))
        return start + (end - start) * (value - first) / (last - first)


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from below one number to above another.

    Example:
        >>> decades(30, 2000)
        [10.0, 100.0, 1000.0, 10000.0]
    """
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    return [10.0**i for i in range(first, last + 1)]


def even(high: float, at_most: int = 5) -> list[float]:
    """Return round numbers, as far apart, from nothing to beyond a number.

    Example:
        >>> even(70)
        [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    step = high / at_most
    size = 10.0 ** math.floor(math.log10(step))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= step * 0.999)
    return [i * step for i in range(math.ceil(high / step * 0.999) + 1)]


def draw_curves(
    curves: Mapping[str, Curve],
    title: str,
    x: Axis,
    y: Axis,
    mark: float,
    chosen: str = "",
    behind: Behind | None = None,
) -> drawing.Drawing:
    """Draw curves, the chosen one wide, and a vertical line at a mark.

    Args:
        curves: Name -> its points. A point that lies at the mark is a dot.
        title: What the picture shows, for those who cannot see it.
        x: The axis below.
        y: The axis on the left.
        mark: Where the line is, as a value of x.
        chosen: The name of the curve that is wide. "": none is.
        behind: A curve that is drawn hollow behind them; a ring is its mark.
    """
    pens = {
        name: _Pen(colour, dashes, 3.5 if name == chosen else 1.8)
        for name, (colour, dashes) in zip(curves, cycle(LOOKS))
    }
    if behind:
        pens[behind.name] = _Pen(FAINT, "", 7, hollow=True)
    key, top = _key(pens)
    bottom = top + 250.0

    def position(a: float, b: float) -> tuple[float, float]:
        return x.position(a, LEFT, WIDTH - RIGHT), y.position(b, bottom, top)

    parts = [*key, *draw_grid(x, y, top, bottom)]
    across, _ = position(mark, y.ticks[0])
    dashed = ' stroke-width="1.5" stroke-dasharray="4 3"'
    parts.append(
        drawing.line(across, top - 6, across, bottom, colour=INK, more=dashed)
    )
    if behind:
        points = {a: position(a, b) for a, b in behind.curve}
        parts += _path(list(points.values()), pens[behind.name])
        ring = f'fill="#ffffff" stroke="{FAINT}" stroke-width="1.5"'
        parts.append(_circle(*points[behind.mark], 8, ring))
    for name, curve in curves.items():
        points = {a: position(a, b) for a, b in curve}
        pen = pens[name]
        parts += _path(list(points.values()), pen)
        if mark in points:
            dot = f'fill="{pen.colour}"'
            parts.append(_circle(*points[mark], 2 + pen.width, dot))
    return drawing.page(parts, bottom + 46, title)


class _Pen(NamedTuple):
    """How a curve is drawn."""

    colour: str
    dashes: str
    width: float
    hollow: bool = False


def _key(pens: Mapping[str, _Pen]) -> tuple[list[str], float]:
    """Write what each curve is; return where the words end."""
    parts = []
    x = 14.0
    y = 24.0
    for name, pen in pens.items():
        if x + 34 + LETTER * len(name) > WIDTH:
            x = 14.0
            y += 24
        parts += _path([(x, y - 5), (x + 26, y - 5)], pen)
        parts.append(drawing.text(x + 32, y, name))
        x += 32 + LETTER * len(name) + 12
    return parts, y + 44


def _path(points: Curve, pen: _Pen) -> list[str]:
    """Draw a curve; a hollow one is drawn again in white, inside."""
    ends = "L".join(
        f"{drawing.number(x)} {drawing.number(y)}" for x, y in points
    )
    more = f' stroke-dasharray="{pen.dashes}"' if pen.dashes else ""
    strokes = [(pen.colour, pen.width)]
    if pen.hollow:
        strokes.append(("#ffffff", pen.width - 3))
    return [
        f'<path d="M{ends}" fill="none" stroke="{colour}" '
        f'stroke-width="{width:g}"{more}/>'
        for colour, width in strokes
    ]


def _circle(x: float, y: float, radius: float, more: str) -> str:
    at = f'cx="{drawing.number(x)}" cy="{drawing.number(y)}"'
    return f'<circle {at} r="{radius:g}" {more}/>'


def draw_grid(x: Axis, y: Axis, top: float, bottom: float) -> list[str]:
    """Draw a line at each tick, with its value, and the axes' names.

    Args:
        x: The axis below.
        y: The axis on the left.
        top: Where the plot begins, in pixels from the top of the picture.
        bottom: Where it ends.
    """
    left = LEFT
    right = WIDTH - RIGHT
    parts = [drawing.quiet_text(14, top - 14, y.name)]
    for value in y.ticks:
        at = y.position(value, bottom, top)
        parts.append(drawing.line(left, at, right, at, colour=GRID))
        label = y.write(value)
        parts.append(drawing.quiet_text(left - 8, at + 5, label, anchor="end"))
    for value in x.ticks:
        at = x.position(value, left, right)
        parts.append(drawing.line(at, top, at, bottom, colour=GRID))
        label = x.write(value)
        anchor = "middle"
        if at + LETTER * len(label) / 2 > WIDTH:
            at = WIDTH - 4
            anchor = "end"
        parts.append(drawing.quiet_text(at, bottom + 19, label, anchor=anchor))
    parts.append(drawing.quiet_text(right, bottom + 40, x.name, anchor="end"))
    return parts
