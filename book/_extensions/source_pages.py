"""Mend what `sphinx.ext.viewcode` makes of the pages that show source.

It puts blocks (`div`) where HTML allows only words (`pre`), lists into lists
beside the entries that they belong to, and links back under names of its own,
some of which the reference does not have.
"""

import re
from collections.abc import Container
from typing import Any

from bs4 import BeautifulSoup
from sphinx.application import Sphinx

LINK_BACK = re.compile(
    r'<a class="viewcode-back" href="[^"#]*#([^"]*)">.*</a>'
)


def mend_source(body: str, described: Container[str]) -> str:
    """Make a page of source valid, with links to what is `described`.

    The signs of the source are escaped: a `<div` in it is none of it.
    """
    before, start, text = body.partition("<pre>")
    text, end, after = text.rpartition("</pre>")
    text = text.replace("<div", "<span").replace("</div>", "</span>")
    text = LINK_BACK.sub(
        lambda link: link[0] if link[1] in described else "", text
    )
    return before + start + text + end + after


def mend_list(body: str) -> str:
    """Put each list of modules into the entry that it belongs to."""
    page = BeautifulSoup(body, "html.parser")
    for inner in page.select("ul > ul"):
        entry = inner.find_previous_sibling("li")
        if entry is not None:
            entry.append(inner.extract())
    return str(page)


def mend(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: Any,
) -> None:
    """Make the body of a page of source, or of the list of them, valid."""
    if not page.startswith("_modules/") or "body" not in context:
        return
    if page == "_modules/index":
        context["body"] = mend_list(context["body"])
    else:
        described = app.env.domains["py"].data["objects"]
        context["body"] = mend_source(context["body"], described)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
