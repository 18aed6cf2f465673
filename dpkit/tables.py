"""Tables: HTML in a notebook and in the book, aligned text in a terminal.

Words stand at the left of their column, and numbers at the right. A column is
one of numbers if most of its cells are. The first cell of a row is its head.
On a narrow page heads wrap and letters shrink (``.dpkit-table`` in
``book/_static/book.css``), so that no column is lost.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

# "8.25", "1,234", "57%", "< 1e-12", "+3%", "×1.05" and "2.5 MB" are numbers,
# too, and stand at the right.
NUMBER = re.compile(
    r"[<>≈×÷±+−-]?\s*\d[\d,]*(\.\d+)?(e[+-]?\d+)?"
    r"(\s*%|\s(B|[kMGT]i?B|s|ms|µs|ns))?"
)


def table(rows: Iterable[Mapping[str, object]], caption: str = "") -> "Table":
    """Show a list of dicts as a table.

    The keys are the heads of columns, and the values are the cells. A float
    is shown with three digits, or more if it is from 1000 on. Strings stand
    as they are: ``f"{share:.0%}"`` shows a share in per cent.

    Args:
        rows: A dict for each row. A head that a row does not have leaves an
            empty cell in that row, and so does None.
        caption: A title above the table; by default none.

    Example:
        >>> table([
        ...     {"link": "nvlink2", "ms": 8.251, "of a step": f"{0.073:.0%}"},
        ...     {"link": "pcie3", "ms": 92, "of a step": f"{0.46:.0%}"},
        ... ])
        link       ms  of a step
        nvlink2  8.25         7%
        pcie3      92        46%
    """
    return Table(rows, caption)


class Table:
    """Rows under heads, which notebooks display: what ``table`` returns."""

    def __init__(
        self, rows: Iterable[Mapping[str, object]], caption: str = ""
    ) -> None:
        self.rows = [dict(row) for row in rows]
        self.heads = list(dict.fromkeys(h for row in self.rows for h in row))
        self.caption = caption

    def __repr__(self) -> str:
        lines = [self.heads, *self._written()]
        widths = [max(map(len, column)) for column in zip(*lines)]
        lefts = self._lefts()
        text = [self.caption] if self.caption else []
        for line in lines:
            cells = [
                word.ljust(width) if left else word.rjust(width)
                for word, width, left in zip(line, widths, lefts)
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join(text)

    def _repr_html_(self) -> str:
        lefts = self._lefts()
        others = len(self.heads) - 1
        heads = _html_row(self.heads, ['th scope="col"'] * (1 + others), lefts)
        tags = ['th scope="row"', *["td"] * others]
        caption = f"<caption>{escape(self.caption, quote=False)}</caption>"
        kind = "dpkit-table wide" if others >= 6 else "dpkit-table"
        return "\n".join(
            [
                f'<table class="{kind}" style="text-align:right">',
                *([caption] if self.caption else []),
                f"<thead>{heads}</thead>",
                "<tbody>",
                *(_html_row(row, tags, lefts) for row in self._written()),
                "</tbody>",
                "</table>",
            ]
        )

    def _lefts(self) -> list[bool]:
        """Return which columns hold words, and not mostly numbers."""
        return [
            2 * sum(map(bool, map(NUMBER.fullmatch, column)))
            <= sum(map(bool, column))
            for column in zip(*self._written())
        ]

    def _written(self) -> list[list[str]]:
        return [
            [_write(row.get(head)) for head in self.heads] for row in self.rows
        ]


def _write(value: object) -> str:
    """Return the words of a cell.

    Example:
        >>> [_write(x) for x in (0.01234, 8.2, 123.4, 1234.5, 2048, True)]
        ['0.0123', '8.20', '123', '1,234', '2,048', 'True']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _three_digits(value)
    return str(value)


def _three_digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")  # 99.96 is "100."


def _html_row(
    words: Sequence[str], tags: Sequence[str], lefts: Sequence[bool]
) -> str:
    cells = []
    for word, tag, is_left in zip(words, tags, lefts):
        style = ' style="text-align:left"' if is_left else ""
        end = f"</{tag.split()[0]}>"
        cells.append(f"<{tag}{style}>{escape(word, quote=False)}{end}")
    return f"<tr>{''.join(cells)}</tr>"
