"""Say what a word means where the pointer rests on it.

A link to a word of the glossary has the word's definition as its title, so
that a reader need not leave the page for it.
"""

import re

from docutils import nodes
from search_words import items
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

# A definition ends with where the word is explained.
WHERE = re.compile(r"\s*Explained in .*", re.DOTALL)


def meanings(env: BuildEnvironment) -> dict[str, str]:
    """Return the definition of each word, by the place of its entry."""
    found = {}
    for item in items(env):
        text = WHERE.sub("", item.next_node(nodes.definition).astext())
        for term in item.findall(nodes.term):
            found |= dict.fromkeys(term["ids"], " ".join(text.split()))
    return found


def add_meanings(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give each link to a word the word's definition."""
    words = [
        word
        for word in doctree.findall(nodes.inline)
        if "std-term" in word["classes"]
    ]
    if not words:
        return
    known = meanings(app.env)
    for word in words:
        link = word.parent
        if not isinstance(link, nodes.reference):
            continue  # Sphinx has said that the glossary lacks it
        place = link.get("refid") or link["refuri"].partition("#")[2]
        link["reftitle"] = known[place]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-resolved", add_meanings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
