"""Name the outputs in text that stand in columns.

Lines of words wrap on a narrow page. A printed table must not, nor a value
whose text has several lines, such as a matrix: they get the class `columns`,
by which the stylesheet lets them scroll.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

# Two spaces between words: something is lined up.
GAP = re.compile(r"\S {2,}\S")


def in_columns(text: str, classes: list[str]) -> bool:
    """Return whether an output in text, of these classes, has columns."""
    if "text_plain" in classes and "\n" in text.strip():
        return True
    return not {"stream", "text_plain"}.isdisjoint(classes) and bool(
        GAP.search(text)
    )


def name_columns(app: Sphinx, doctree: nodes.document) -> None:
    """Give outputs in columns the class `columns`."""
    for block in doctree.findall(nodes.literal_block):
        if in_columns(block.astext(), block["classes"]):
            block["classes"].append("columns")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", name_columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
