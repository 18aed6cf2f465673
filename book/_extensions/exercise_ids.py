"""Give the contents of each exercise and solution an id of its own.

sphinx-exercise gives all of them the same two.
"""

from docutils import nodes
from sphinx.application import Sphinx

SHARED = ("exercise-content", "solution-content")


def make_unique(app: Sphinx, doctree: nodes.document) -> None:
    """Put the label of the exercise before such an id."""
    for section in doctree.findall(nodes.section):
        for i, name in enumerate(section["ids"]):
            if name in SHARED:
                label = section.parent.get("label") or section.parent["ids"][0]
                section["ids"][i] = f"{label}-{name}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", make_unique)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
