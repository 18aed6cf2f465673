"""Pictures as SVG text, from the standard library alone.

The ground is white, so that a picture reads the same in a light and a dark
page. On a narrow page the picture shrinks and its words grow.
"""

import html
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpkit.units import round_ticks

WIDTH = 640
INK = "#1f2933"
QUIET = "#5a6472"
TRACK = "#f1f3f6"
GRID = "#d9dee4"
STRIPE = "#b4bcc8"
BLUE = "#2563eb"
AMBER = "#b45309"
GREEN = "#047857"
VIOLET = "#7c3aed"

HALO = 'stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
LETTER = 10.0  # the width to leave for a letter, where the page is narrow
# There a picture of 640 has 356 pixels, so that letters of 20 have eleven.
STYLE = (
    "@media (max-width:480px){.dpkit-drawing text{"
    "font-family:Arial,Roboto,sans-serif;font-size:20px}"
    ".dpkit-drawing .in-bar{display:none}}"
)
Entry = tuple[str, str, str]  # of a legend: words, fill, more attributes


class Drawing:
    """A picture as SVG text, and its title for those who see no pictures."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg = svg
        self.title = title

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<drawing: {self.title}>"

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")


def page(
    parts: Sequence[str], height: float, title: str, width: float = WIDTH
) -> Drawing:
    """Put the parts of a picture on a white ground.

    Args:
        parts: SVG text each.
        height: Of the picture, in pixels.
        title: What it shows, for those who do not see it.
        width: Of the picture, in pixels.
    """
    body = "\n".join(parts)
    # Names in one page of HTML are shared by all of its pictures.
    names = f"d{zlib.crc32(body.encode()):08x}-"
    body = body.replace("url(#", f"url(#{names}")
    body = body.replace('<pattern id="', f'<pattern id="{names}')
    size = f'width="{width:g}" height="{height:g}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dpkit-drawing" '
        f'{size} viewBox="0 0 {width:g} {height:g}" '
        f'style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(title)}" font-size="13" fill="{INK}" '
        f'font-family="system-ui, -apple-system, sans-serif">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect {size} fill="#ffffff"/>\n{body}\n</svg>\n'
    )
    return Drawing(svg, title)


def escape(words: str) -> str:
    """Make words fit for XML: a sign that it does not allow becomes □."""
    allowed = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    return html.escape(re.sub(allowed, "□", words))


def number(value: float) -> str:
    """Write a coordinate to two places: "1.5", "2" and, of -0.001, "0"."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str,
    more: str = "",
) -> str:
    """Draw a rectangle, as SVG text.

    Args:
        x: Its left edge, in pixels.
        y: Its upper edge, in pixels.
        width: In pixels.
        height: In pixels.
        fill: A colour, or a pattern such as "url(#name)".
        more: More attributes, such as ``' rx="2"'``.
    """
    numbers = {"x": x, "y": y, "width": width, "height": height}
    where = " ".join(f'{k}="{number(v)}"' for k, v in numbers.items())
    return f'<rect {where} fill="{fill}"{more}/>'


def line(
    x1: float, y1: float, x2: float, y2: float, *, colour: str, more: str = ""
) -> str:
    """Draw a line, as SVG text.

    Args:
        x1: Where it begins, in pixels from the left,
        y1: and from above.
        x2: Where it ends, in pixels from the left,
        y2: and from above.
        colour: Its colour.
        more: More attributes, such as ``' stroke-width="2"'``.
    """
    ends = f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
    return f'<path d="{ends}" stroke="{colour}"{more}/>'


def text(
    x: float, y: float, words: str, *, anchor: str = "start", more: str = ""
) -> str:
    """Write words, as SVG text.

    Args:
        x: Where they are, in pixels from the left.
        y: The line that they stand on, in pixels from above.
        words: What is written; signs that XML keeps for itself are escaped.
        anchor: What is at x: the "start", "middle" or "end" of the words.
        more: More attributes, such as ``' font-weight="600"'``.
    """
    if anchor != "start":
        more += f' text-anchor="{anchor}"'
    at = f'x="{number(x)}" y="{number(y)}"'
    return f"<text {at}{more}>{escape(words)}</text>"


def quiet_text(
    x: float, y: float, words: str, *, anchor: str = "start"
) -> str:
    """Write words in grey, as SVG text.

    Args:
        x: Where they are, in pixels from the left.
        y: The line that they stand on, in pixels from above.
        words: What is written.
        anchor: What is at x: the "start", "middle" or "end" of the words.
    """
    return text(x, y, words, anchor=anchor, more=f' fill="{QUIET}"')


def bold_text(x: float, y: float, words: str) -> str:
    """Write words in bold letters."""
    return text(x, y, words, more=' font-weight="600"')


def cut(words: str, length: int) -> str:
    """Cut words to a length, and show by "…" that they were cut."""
    return words if len(words) <= length else words[: length - 1] + "…"


def hatch(
    name: str,
    colour: str,
    angle: int = 45,
    stripe: str = "#ffffff",
    opacity: float = 0.6,
) -> str:
    """Define a pattern of stripes, as SVG text.

    Args:
        name: What a ``fill`` calls it: "url(#name)".
        colour: The ground.
        angle: The direction of the stripes, in degrees.
        stripe: The colour of the stripes.
        opacity: How little of the ground the stripes let through, up to 1.
    """
    return (
        f'<pattern id="{name}" width="5" height="5" '
        f'patternUnits="userSpaceOnUse" patternTransform="rotate({angle})">'
        f'<rect width="5" height="5" fill="{colour}"/>'
        f'<rect width="1.3" height="5" fill="{stripe}" '
        f'fill-opacity="{opacity:g}"/>'
        f"</pattern>"
    )


def legend(x: float, y: float, entries: Sequence[Entry]) -> list[str]:
    """Draw a box and words for each entry, in lines 22 apart."""
    parts = []
    for row, lined in enumerate(legend_lines(x, entries)):
        for left, (words, fill, more) in lined:
            at = y + 22 * row
            parts.append(
                box(left + 0.5, at - 10.5, 13, 11, fill=fill, more=more)
            )
            parts.append(text(left + 19, at, words))
    return parts


def legend_lines(
    x: float, entries: Sequence[Entry]
) -> list[list[tuple[float, Entry]]]:
    """Return the lines of a legend: each entry, and where it begins."""
    lines: list[list[tuple[float, Entry]]] = [[]]
    left = x
    for entry in entries:
        width = 19 + LETTER * len(entry[0])
        if left + width > WIDTH:
            lines.append([])
            left = x
        lines[-1].append((left, entry))
        left += width + 12
    return lines


def known_first(fills: Mapping[str, str], found: set[str]) -> list[str]:
    """Return what was found, in the order of a table of fills, others last."""
    known = [name for name in fills if name in found]
    return known + sorted(found.difference(known))


def ticks(
    start: float, end: float, left: float, right: float, at_most: int = 6
) -> list[tuple[float, str]]:
    """Return the round numbers of an axis: where each stands, and its words.

    Args:
        start: The value at the left end of the axis.
        end: The value at its right end.
        left: Where the axis begins, in pixels.
        right: Where it ends, in pixels.
        at_most: About how many steps between the numbers there may be.
    """
    scale = (right - left) / (end - start)
    labels = round_ticks(start, end, at_most=at_most)
    return [(left + (float(w) - start) * scale, w) for w in labels]
