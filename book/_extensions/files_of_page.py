"""Let a page load the styles and scripts that something on it uses.

Extensions add theirs to every page. Here a page without a formula does without
the styles of formulas, and a page without code without the button that copies
it.
"""

import re
from typing import Any

from sphinx.application import Sphinx

FORMULA = r'class="(katex|math)\b'
CODE = r'class="[\w -]*\bhighlight\b'
FOLDED = r'class="[\w -]*\b(toggle|dropdown)\b'
DESIGN = r'class="[\w -]*\bsd-'
# Files by the beginning of their names, and what on a page they are for.
FOR = {
    "clipboard": CODE,
    "copybutton": CODE,
    "pygments": CODE,
    "design-tabs": r'class="[\w -]*\bsd-tab-set\b',
    "sphinx-design": DESIGN,
    "exercise.css": r'class="[\w -]*\b(exercise|solution)\b',
    "auto-render": FORMULA,
    "katex-math": r'class="katex-display\b|<div class="math\b',
    "katex": FORMULA,
    "mystnb": r'class="[\w -]*\bcell\b',
    "predict": r'class="predict\b',
    "togglebutton": FOLDED,
}


def is_used(file: str, body: str) -> bool:
    """Return whether a page with this body has something that needs a file."""
    name = file.rpartition("/")[2]
    patterns = (FOR[start] for start in FOR if name.startswith(start))
    return all(re.search(pattern, body) for pattern in patterns)


def keep_used(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Take away what nothing on the page uses."""
    body = context.get("body", "")
    for kind in ("script_files", "css_files"):
        files = context[kind]
        # A script that stands in the page itself has no file.
        files[:] = [
            file
            for file in files
            if not file.filename or is_used(str(file.filename), body)
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension, to come after those that add files."""
    app.connect("html-page-context", keep_used, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
