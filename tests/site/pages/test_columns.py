"""Printed tables keep their columns; printed sentences may wrap."""

import columns
import pytest
from docutils import nodes
from docutils.utils import new_document


@pytest.mark.parametrize(
    ("text", "classes", "named"),
    [
        ("sim:0   86%    7%\nsim:1   85%    6%", ["output", "stream"], True),
        ("256 rows on one: 0.10 0.51", ["output", "stream"], False),
        ("    an indented line", ["output", "stream"], False),
        ("x = 1  # code", ["highlight"], False),
        ("Recipe(lr=0.1, momentum=0.9)\n", ["output", "text_plain"], False),
        ("tensor([[1.],\n        [2.]])", ["output", "text_plain"], True),
    ],
)
def test_printed_columns_are_named(text, classes, named):
    document = new_document("page")
    document += nodes.literal_block(text, text, classes=classes)
    columns.name_columns(None, document)
    assert ("columns" in document[0]["classes"]) is named
