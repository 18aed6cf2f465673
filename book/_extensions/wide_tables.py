"""Name the tables that a line of the text has no room for.

A table of four columns or more, with long lines, gets the class
`full-width`. By that the stylesheet lets it use the margin of a wide screen,
and there the theme folds the list of headings while such a table is in view.
In a box, or where a cell unfolds, the width is that of the box.
"""

import re
from html import unescape
from itertools import zip_longest

from docutils import nodes
from sphinx.application import Sphinx

LEAST = 4  # columns
ROOM = 76  # letters in a line
HIDES = {"tag_hide-output", "tag_hide-cell"}
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
Rows = list[list[str]]


def is_wide(rows: Rows) -> bool:
    """Return whether a table has many columns, and long lines.

    A line has the longest cell of each column, and two spaces between them.
    """
    columns = zip_longest(*rows, fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    line = sum(widths) + 2 * (len(widths) - 1)
    return len(widths) >= LEAST and line >= ROOM


def rows_of(table: nodes.table) -> Rows:
    """Return the texts of the cells of a table in Markdown."""
    return [
        [entry.astext() for entry in row.findall(nodes.entry)]
        for row in table.findall(nodes.row)
    ]


def rows_shown(html: str) -> Rows:
    """Return the texts of the cells of a table that a cell shows."""
    return [
        [unescape(TAG.sub("", cell)) for cell in CELL.findall(row)]
        for row in ROW.findall(html)
    ]


def stands_in_text(output: nodes.Node) -> bool:
    """Return whether a cell shows an output as it is, outside of a box."""
    cell = output.parent
    while cell is not None and "cell" not in cell.get("classes", []):
        cell = cell.parent
    return (
        cell is not None
        and isinstance(cell.parent, nodes.section)
        and HIDES.isdisjoint(cell["classes"])
    )


def name_wide(app: Sphinx, doctree: nodes.document) -> None:
    """Give wide tables the class `full-width`."""
    for table in doctree.findall(nodes.table):
        in_text = isinstance(table.parent, nodes.section)
        if in_text and is_wide(rows_of(table)):
            table["classes"].append("full-width")
    for output in doctree.findall(nodes.raw):
        html = output.astext()
        if (
            '<table class="dpkit-table' in html
            and stands_in_text(output)
            and is_wide(rows_shown(html))
        ):
            output["classes"].append("full-width")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", name_wide)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
