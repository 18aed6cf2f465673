"""Tables: HTML in a notebook and in the book, aligned text in a terminal.

Words stand at the left of their column and numbers at the right. The first
cell of a row is its head. On a narrow page heads wrap and letters shrink
(``.dpkit-table`` in ``book/_static/book.css``), so that no column is lost.
"""

from collections.abc import Iterable, Sequence
from html import escape


class Table:
    """Rows under heads, which notebooks display.

    Args:
        columns: The heads, with ``|`` between two of them. What follows a
            colon is the format of the values below, such as ``,.1f``; ``>``
            puts words to the right. Without one a value is shown as it is.
        rows: The cells of each row. A word keeps its form in any column,
            and None leaves its cell empty.
        caption: A title above the table; by default none.

    Example:
        >>> Table("link | ms:.1f", [("nvlink2", 8.25), ("pcie3", 92)])
        link       ms
        nvlink2   8.2
        pcie3    92.0
    """

    def __init__(
        self,
        columns: str,
        rows: Iterable[Sequence[object]] = (),
        caption: str = "",
    ) -> None:
        # "link | ms:.1f" has the heads "link", "ms", the formats "", ".1f".
        parts = [part.partition(":") for part in columns.split("|")]
        self.heads = [head.strip() for head, _, _ in parts]
        self.formats = [spec.strip() for _, _, spec in parts]
        self.rows: list[Sequence[object]] = []
        self.caption = caption
        for row in rows:
            self.add(*row)

    def add(self, *cells: object) -> None:
        """Add a row: a cell for each column.

        Example:
            >>> table = Table("rank | bytes sent:,")
            >>> table.add(0, 3000)
            >>> table
            rank  bytes sent
               0       3,000
        """
        if len(cells) != len(self.heads):
            raise ValueError(
                "a row does not fit the columns "
                f"(cells: {len(cells)}, columns: {len(self.heads)})"
            )
        self.rows.append(cells)

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
        """Return which columns hold words: no format, not only numbers."""
        return [
            not spec and not all(_is_number(row[i]) for row in self.rows)
            for i, spec in enumerate(self.formats)
        ]

    def _written(self) -> list[list[str]]:
        return [list(map(_write, row, self.formats)) for row in self.rows]


def _is_number(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number or value is None


def _write(value: object, spec: str) -> str:
    if value is None:
        return ""
    return format(value, "" if isinstance(value, str) else spec)


def _html_row(
    words: Sequence[str], tags: Sequence[str], lefts: Sequence[bool]
) -> str:
    cells = []
    for word, tag, is_left in zip(words, tags, lefts):
        style = ' style="text-align:left"' if is_left else ""
        end = f"</{tag.split()[0]}>"
        cells.append(f"<{tag}{style}>{escape(word, quote=False)}{end}")
    return f"<tr>{''.join(cells)}</tr>"
