"""Say in Markdown what a role becomes on its page: its words and its link.

Sphinx and MyST do it as for a page, so titles, numbers, authors and years are
those that readers of the site see. A link leads to the published site. Where
that has no address, the words stand without a link.
"""

import re
from collections.abc import Callable
from functools import cache
from urllib.parse import urljoin

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.addnodes import number_reference
from sphinx.application import Sphinx
from sphinx.util.docutils import sphinx_domains

# What Markdown would take for more than a letter; in a table "|" is more.
SIGNS = re.compile(r"([\\`*_$<|])")


def resolved(app: Sphinx, page: str, role: str) -> nodes.Element:
    """Return the paragraph that a page would have for a role alone."""
    document = new_document(app.env.doc2path(page))
    document.settings.env = app.env
    app.env.prepare_settings(page)
    with sphinx_domains(app.env):
        MystParser().parse(role, document)
    app.env.apply_post_transforms(document, page)
    return document.next_node(nodes.paragraph)


def as_markdown(node: nodes.Node, page_address: str) -> str:
    """Return a part of a paragraph as Markdown.

    Args:
        node: The part, as Sphinx resolved it.
        page_address: Where its page is published, or "". Links within the
            book are relative to it.
    """
    if isinstance(node, nodes.Text):
        return SIGNS.sub(r"\\\1", node)
    if isinstance(node, nodes.literal):
        return f"`{node.astext()}`"
    if isinstance(node, nodes.math):
        return f"${node.astext()}$"
    text = "".join(as_markdown(part, page_address) for part in node.children)
    if isinstance(node, nodes.emphasis):
        return f"*{text}*"
    if "bibtex-citation" in node.get("classes", ()):
        # In brackets, a link would look like a link in a link.
        return f"({text[1:-1]})"
    if isinstance(node, nodes.reference | number_reference):
        # A link to the top of the page itself has the address "".
        target = f"#{node['refid']}" if "refid" in node else node["refuri"]
        address = urljoin(page_address, target)
        if address.startswith("http"):
            return f"[{text}]({address})"
    return text


def words_of(app: Sphinx, page: str, site: str) -> Callable[[str], str]:
    """Return a function from the roles of a page to Markdown.

    Args:
        app: Sphinx, when it has read all pages.
        page: The name of the page, such as "book/overlap".
        site: The address of the published site, which ends in "/", or "".
    """
    page_address = f"{site}{page}.html" if site else ""

    @cache
    def in_words(role: str) -> str:
        return as_markdown(resolved(app, page, role), page_address)

    return in_words
