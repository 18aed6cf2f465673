"""Let readers solve exercises in the page, and give them an open notebook.

After the stub of each exercise that is checked without torch comes an empty
place, which `exercises.js` fills with an editor. Without it nothing shows.

The download button of a chapter hands out its notebook without solutions.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from dpbook.exercises.listed import CHECKS

PLACE = '<div class="exercise-in-page" data-exercise="{name}" hidden></div>'
START = "```{solution-start}"
END = "```{solution-end}\n```"
IN_PAGE = "*The solution stands in the page of this chapter.*"


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


def without_solutions(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a student's notebook: stubs to fill in, and no solution.

    A cell of text may end one solution and begin the next exercise.
    """
    kept, solving, asked = [], False, False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            asked |= "stub" in cell["metadata"].get("tags", [])
            if not solving:
                kept.append({**cell, "outputs": []} if asked else cell)
            continue
        left = ""
        if solving and END in text:
            text, solving = text.split(END, 1)[1].lstrip(), False
        if START in text:
            left, solving = f"{text.split(START)[0]}{IN_PAGE}", True
        elif not solving:
            left = text
        if left:
            kept.append({**cell, "source": left.splitlines(keepends=True)})
    return {**notebook, "cells": kept}


def write_student_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Put students' notebooks where the download buttons lead."""
    if exception is not None or app.builder.name != "html":
        return
    for name in app.env.found_docs:
        source = Path(app.srcdir, f"{name}.ipynb")
        target = Path(app.outdir, "_sources", f"{name}.ipynb")
        if target.exists():
            notebook = without_solutions(json.loads(source.read_text("utf-8")))
            text = json.dumps(notebook, indent=1, ensure_ascii=False)
            target.write_text(f"{text}\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", mark_stubs)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_student_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
