"""Bars of parts, one below the other, and a limit."""

from collections.abc import Callable, Mapping
from math import fsum

from dpkit.sim.timeline import drawing

FILLS = (
    drawing.BLUE,
    drawing.GREEN,
    drawing.AMBER,
    drawing.VIOLET,
    drawing.QUIET,
    drawing.INK,
)
IN_A_LINE = 3  # entries of the legend
BAR = 22  # the height of a bar
STEP = 34  # from bar to bar
RIGHT = 14  # the margin
# The width of a letter of a name where the page is narrow. Names stand before
# bars, so they need more room than words that nothing follows.
LETTER = 11.5
TOTAL = 108  # the width of what stands behind a bar


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    show: Callable[[float], str],
    limit: tuple[str, float] | None = None,
) -> drawing.Drawing:
    """Draw a bar for each row, of its parts; and a line at a limit.

    Args:
        rows: Name -> part -> size. All have the same parts.
        title: What the bars show.
        show: Writes a size with its unit.
        limit: What it is, and its size.

    Example:
        >>> rows = {"yours": {"a": 3.0, "b": 1.0}, "best": {"a": 2.0, "b": 1}}
        >>> stacked_bars(rows, "seconds", str)
        <drawing: seconds>
    """
    parts, y = _head(list(next(iter(rows.values()))), title)
    left = 14 + LETTER * max(map(len, rows)) + 14
    most = max(fsum(row.values()) for row in rows.values())
    most = max(most, limit[1] if limit else 0.0) or 1.0
    scale = (drawing.WIDTH - RIGHT - TOTAL - left) / most
    top = y - 10
    y -= 6
    end = drawing.WIDTH - RIGHT
    for name, row in rows.items():
        total = show(fsum(row.values()))
        parts += _bar(row, x=left, y=y, scale=scale, show=show)
        parts.append(drawing.text(14, y + 16, name))
        parts.append(drawing.text(end, y + 16, total, anchor="end"))
        y += STEP
    if limit:
        parts += _limit(
            x=left + limit[1] * scale, top=top, y=y, limit=limit, show=show
        )
        y += 22
    return drawing.page(parts, y + 2, title)


def _head(names: list[str], title: str) -> tuple[list[str], float]:
    """Draw the title and the legend; return where they end, too."""
    parts = [drawing.bold_text(14, 22, title)]
    y = 46.0
    entries = [(name, fill, "") for name, fill in zip(names, FILLS)]
    for i in range(0, len(entries), IN_A_LINE):
        parts += drawing.legend(14, y, entries[i : i + IN_A_LINE])
        y += 22
    return parts, y


def _bar(
    row: Mapping[str, float],
    *,
    x: float,
    y: float,
    scale: float,
    show: Callable[[float], str],
) -> list[str]:
    boxes = []
    for (name, size), fill in zip(row.items(), FILLS):
        width = size * scale
        if width >= 0.5:
            shape = drawing.box(x, y, max(width - 1, 0.5), BAR, fill=fill)
            tooltip = drawing.escape(f"{name}: {show(size)}")
            boxes.append(f"{shape[:-2]}><title>{tooltip}</title></rect>")
        x += width
    return boxes


def _limit(
    *,
    x: float,
    top: float,
    y: float,
    limit: tuple[str, float],
    show: Callable[[float], str],
) -> list[str]:
    dashed = ' stroke-width="2" stroke-dasharray="5 3"'
    label = f"{limit[0]}: {show(limit[1])}"
    return [
        drawing.line(x, top, x, y, colour=drawing.INK, more=dashed),
        drawing.text(x, y + 14, label, anchor="end"),
    ]
