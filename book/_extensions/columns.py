"""Name the printed outputs that stand in columns.

Lines of words wrap on a narrow page. A printed table must not: it gets the
class `columns`, by which the stylesheet lets it scroll.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

# Two spaces between words: something is lined up.
GAP = re.compile(r"\S {2,}\S")


def name_columns(app: Sphinx, doctree: nodes.document) -> None:
    """Give printed tables the class `columns`."""
    for block in doctree.findall(nodes.literal_block):
        classes = block["classes"]
        if "stream" in classes and GAP.search(block.astext()):
            classes.append("columns")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", name_columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
