"""The search leads from the words of others to the page that explains them."""

import json
import re

import pytest
from search_index import stems
from sphinx.cmd.build import build_main
from sphinx.search import js_index

PAGES = {
    "terms": """
Terms
=====

.. glossary::

   loop
   Circle
      A ring: :doc:`ring`, and where it is :ref:`cut <cut>`.
""",
    "ring": """
:orphan:

Rings
=====

.. _cut:

Half rings
----------
""",
    "star": """
:orphan:

Stars
=====
""",
}
# In the order in which the entry names them.
OF_LOOP = [
    ("book/ring", ""),
    # The first of the names that the section has.
    ("book/ring", "half-rings"),
    ("book/terms", "term-loop"),
]


@pytest.fixture
def build(tmp_path):
    """Write pages and build; give the entries that the search then has."""

    def build(**pages):
        (tmp_path / "book").mkdir(exist_ok=True)
        for name, text in pages.items():
            (tmp_path / "book" / f"{name}.rst").write_text(text, "utf-8")
        words = "-q -W -C -D extensions=search_words -D html_theme=basic"
        words += " -D root_doc=book/terms"
        folders = [str(tmp_path), str(tmp_path / "_build")]
        assert build_main([*words.split(), *folders]) == 0
        written = (tmp_path / "_build" / "searchindex.js").read_text("utf-8")
        index = js_index.loads(written)
        return {
            words: [(index["docnames"][page], at) for page, at, _ in places]
            for words, places in index["indexentries"].items()
        }

    return build


def test_a_second_build_forgets_no_entry_of_a_page_that_has_not_changed(build):
    first = build(**PAGES)
    *named, _ = OF_LOOP
    of_circle = [*named, ("book/terms", "term-Circle")]
    assert first == {"loop": OF_LOOP, "circle": of_circle}
    assert build(star=PAGES["star"] + "\nA star has one root.\n") == first
    # A list that names one page more leads to it, though it has not changed.
    more = PAGES["terms"].replace(":doc:`ring`", ":doc:`star`, :doc:`ring`")
    assert build(terms=more)["loop"] == [("book/star", ""), *OF_LOOP]


@pytest.mark.slow
def test_the_words_of_an_entry_lead_to_the_pages_that_it_names(site):
    text = (site / "_static" / "search" / "words.js").read_text("utf-8")
    index = json.loads(re.search(r"= (.*);", text)[1])

    def pages(words):
        key = " ".join(stems(words))
        return {
            (index["pages"][page], place)
            for page, place in index["entries"][key]
        }

    assert ("book/layer-partitioning", "") in pages("tensor parallelism")
    assert {("book/museum", ""), ("book/cluster", "")} <= pages("deadlock")
    # The section that a place begins, and a word of the book's own.
    section = ("book/network-partitioning", "recomputation")
    assert section in pages("activation checkpointing")
    assert ("book/collectives", "") in pages("ring")


@pytest.mark.slow
def test_the_search_loads_its_weights_and_not_the_index_of_sphinx(site):
    search = (site / "search.html").read_text("utf-8")
    scripts = re.findall(r'<script src="([^"]+)"', search)
    assert scripts[-4:] == [
        "_static/searchtools.js",
        "_static/language_data.js",
        "_static/search/words.js",
        "_static/search/rank.js",
    ]
    assert "searchindex.js" not in search
    other = (site / "book" / "overlap.html").read_text("utf-8")
    assert "_static/search/" not in other
