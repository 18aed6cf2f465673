"""The search leads from the words of others to the page that explains them."""

import json
import re

import pytest
from search_index import stems


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
