"""Lead the search from the words of others to the pages that explain them.

The search of Sphinx knows no word but those of a page. `terms.md` lists words
that students type, and `notation.md` those of the book. What one of their
entries is called is found on the pages that the entry names, too.
"""

from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

FOLDER = "book/"
LISTS = (f"{FOLDER}terms", f"{FOLDER}notation")
Place = tuple[str, str]  # a page, and a place there or nothing


def items(env: BuildEnvironment) -> Iterator[nodes.definition_list_item]:
    """Yield the entries of both lists."""
    for page in LISTS:
        if page in env.found_docs:
            for glossary in env.get_doctree(page).findall(addnodes.glossary):
                yield from glossary.findall(nodes.definition_list_item)


def entries(env: BuildEnvironment) -> Iterator[tuple[list[str], set[Place]]]:
    """Yield the words of each entry, and the places that it names."""
    for item in items(env):
        words = [term.astext() for term in item.findall(nodes.term)]
        links = item.findall(addnodes.pending_xref)
        places = {place_of(env, link) for link in links}
        yield words, places - {None}


def place_of(
    env: BuildEnvironment, link: addnodes.pending_xref
) -> Place | None:
    """Return where a link to a page, or to a named place, leads."""
    target = link["reftarget"]
    if link["reftype"] == "doc":
        return FOLDER + target, ""
    labels = env.get_domain("std").labels
    return labels[target][:2] if target in labels else None


def add_words(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Add the words that lead to a page to what the search knows of it."""
    for words, places in entries(app.env):
        for there, place in places:
            if there == page:
                at = section_of(doctree, place)
                named = [("single", w, at, "main", None) for w in words]
                doctree.append(addnodes.index(entries=named))


def section_of(doctree: nodes.document, place: str) -> str:
    """Return the name of the section that a place begins, or nothing.

    A section has several names. The search shows the text of the element that
    bears the first of them.
    """
    for section in doctree.findall(nodes.section):
        if place in section["ids"]:
            return section["ids"][0]
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-resolved", add_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
