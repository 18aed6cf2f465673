"""Let readers solve exercises in the page.

After the stub of each exercise that is checked without torch comes an empty
place, which `exercises.js` fills with an editor. Without it nothing shows.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from dpbook.exercises.listed import CHECKS

PLACE = '<div class="exercise-in-page" data-exercise="{name}" hidden></div>'


def function_name(code: str) -> str:
    """Return the name of the last function that a code defines."""
    return re.findall(r"^def (\w+)", code, re.MULTILINE)[-1]


def mark_stubs(app: Sphinx, doctree: nodes.document) -> None:
    """Put a place for an editor behind each stub that a page can check."""
    for cell in list(doctree.findall(nodes.container)):
        if "tag_stub" in cell["classes"]:
            name = function_name(cell.astext())
            if name in CHECKS:
                place = nodes.raw("", PLACE.format(name=name), format="html")
                cell.parent.insert(cell.parent.index(cell) + 1, place)


def add_script(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Load the script and the style only where there is an exercise."""
    if 'class="exercise-in-page"' in context.get("body", ""):
        app.add_js_file("live/engine.js", loading_method="defer")
        app.add_js_file("exercises.js", loading_method="defer")
        app.add_css_file("exercises.css")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", mark_stubs)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
