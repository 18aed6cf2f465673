"""Mend what `sphinx.ext.viewcode` makes of the pages that show source.

It puts blocks (`div`) where HTML allows only words (`pre`), lists into lists
beside the entries that they belong to, and links back under names of its own,
some of which the reference does not have.
"""

from typing import Any

from bs4 import BeautifulSoup
from sphinx.application import Sphinx


def mend(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: Any,
) -> None:
    """Make the body of a page of source valid."""
    if not page.startswith("_modules/") or "body" not in context:
        return
    described = app.env.domains["py"].data["objects"]
    body = BeautifulSoup(context["body"], "html.parser")
    for link in body.select("a.viewcode-back"):
        if link["href"].partition("#")[2] not in described:
            link.decompose()
    for block in body.select("pre div"):
        block.name = "span"
    for inner in body.select("ul > ul"):
        entry = inner.find_previous_sibling("li")
        if entry is not None:
            entry.append(inner.extract())
    context["body"] = str(body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
