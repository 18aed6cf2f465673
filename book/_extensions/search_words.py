"""Lead the search from the words of others to the pages that explain them.

The search of Sphinx knows no word but those of a page. `terms.md` lists words
that students type, and `notation.md` those of the book. What one of their
entries is called is found on the pages that the entry names, too.
"""

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search import js_index

FOLDER = "book/"
LISTS = (f"{FOLDER}terms", f"{FOLDER}notation")
Place = tuple[str, str]  # a page, and a place there or nothing


def items(env: BuildEnvironment) -> Iterator[nodes.definition_list_item]:
    """Yield the entries of both lists."""
    for page in LISTS:
        if page in env.found_docs:
            for glossary in env.get_doctree(page).findall(addnodes.glossary):
                yield from glossary.findall(nodes.definition_list_item)


def entries(env: BuildEnvironment) -> dict[str, list[Place]]:
    """Return where the words of each entry lead.

    These are the places that the entry names, in its order, and the entry
    itself.
    """
    found = {}
    of_terms = env.get_domain("std").objects
    for item in items(env):
        links = item.findall(addnodes.pending_xref)
        named = dict.fromkeys(place_of(env, link) for link in links)
        places = [place for place in named if place]
        for term in item.findall(nodes.term):
            words = term.astext()
            found[words] = [*places, of_terms["term", words]]
    return found


def place_of(
    env: BuildEnvironment, link: addnodes.pending_xref
) -> Place | None:
    """Return where a link to a page, or to a named place, leads."""
    target = link["reftarget"]
    if link["reftype"] == "doc":
        return FOLDER + target, ""
    labels = env.get_domain("std").labels
    if target not in labels:
        return None
    page, place, _ = labels[target]
    return page, section_of(env.get_doctree(page), place)


def section_of(doctree: nodes.document, place: str) -> str:
    """Return the name of the section that a place begins, or nothing.

    A section has several names. The search shows the text of the element that
    bears the first of them.
    """
    for section in doctree.findall(nodes.section):
        if place in section["ids"]:
            return section["ids"][0]
    return ""


def put_entries(app: Sphinx, exception: Exception | None) -> None:
    """Put the entries of both lists into the index that Sphinx has written.

    Sphinx itself lists entries of the pages that it has just written, and
    forgets those of all others.
    """
    file = Path(app.outdir, "searchindex.js")
    if exception or not file.exists():
        return
    index = js_index.loads(file.read_text("utf-8"))
    number = {page: i for i, page in enumerate(index["docnames"])}
    index["indexentries"] = {
        words.lower(): [
            (number[page], at, True) for page, at in places if page in number
        ]
        for words, places in entries(app.env).items()
    }
    file.write_text(js_index.dumps(index), "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", put_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
