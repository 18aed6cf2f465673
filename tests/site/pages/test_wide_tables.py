"""Tables with many columns and long lines are named: they use the margin."""

import pytest
import wide_tables
from docutils import nodes
from docutils.utils import new_document

from dpkit.tables import table

LONG = "word " * 15  # 75 letters
WIDE = table([{"a": "x", "b": LONG, "c": "y & z", "d": 1}])
THREE = table([{"a": "x", "b": LONG, "c": "y & z"}])
SHORT = table([{"a": "x", "b": "y", "c": "z", "d": 1}])


def markdown_table(words):
    """Return what a table in Markdown, with one row, becomes."""
    found, group, body, row = (
        kind() for kind in (nodes.table, nodes.tgroup, nodes.tbody, nodes.row)
    )
    row.extend(nodes.entry("", nodes.paragraph(text=word)) for word in words)
    for outer, inner in ((body, row), (group, body), (found, group)):
        outer.append(inner)
    return found


def shown(output, *tags):
    """Return what a cell that shows a table becomes, and its output."""
    raw = nodes.raw("", output._repr_html_(), format="html")
    output = nodes.container("", nodes.container("", raw))
    return nodes.container("", output, classes=["cell", *tags]), raw


def name(part, box=None):
    """Name what is wide on a page of a section with a part, or with a box."""
    if box is not None:
        box += part
    document = new_document("page")
    document += nodes.section("", box or part)
    wide_tables.name_wide(None, document)


@pytest.mark.parametrize(
    ("words", "wide"),
    [
        (["x", LONG, "y", "z"], True),
        (["x" * 17, "x" * 17, "x" * 18, "x" * 18], True),  # 70, and 6 spaces
        (["x" * 17, "x" * 17, "x" * 17, "x" * 18], False),
        (["x", LONG, "y"], False),
    ],
)
def test_many_columns_and_a_long_line_are_wide(words, wide):
    part = markdown_table(words)
    name(part)
    assert ("full-width" in part["classes"]) is wide


@pytest.mark.parametrize(
    ("output", "tags", "wide"),
    [
        (WIDE, [], True),
        (WIDE, ["tag_hide-input"], True),  # its code unfolds, the table stands
        (WIDE, ["tag_hide-output"], False),
        (WIDE, ["tag_hide-cell"], False),
        (THREE, [], False),
        (SHORT, [], False),
    ],
)
def test_a_table_that_a_cell_shows(output, tags, wide):
    part, raw = shown(output, *tags)
    name(part)
    assert ("full-width" in raw["classes"]) is wide


def test_in_a_box_the_box_gives_the_width():
    part, raw = shown(WIDE)
    name(part, nodes.admonition())
    written = markdown_table(["x", LONG, "y", "z"])
    name(written, nodes.admonition())
    assert raw["classes"] == written["classes"] == []


def test_tags_and_signs_of_html_are_no_letters():
    rows = wide_tables.rows_shown(WIDE._repr_html_())
    assert rows == [["a", "b", "c", "d"], ["x", LONG, "y & z", "1"]]
    assert not wide_tables.is_wide([])
