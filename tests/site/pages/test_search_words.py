"""The search leads from the words of others to the page that explains them."""

import json
import re

import pytest


@pytest.mark.slow
def test_the_words_of_an_entry_lead_to_the_pages_that_it_names(site):
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(re.search(r"setIndex\((.*)\)", text, re.S)[1])

    def pages(word):
        return {
            (index["docnames"][page], place, is_main)
            for page, place, is_main in index["indexentries"][word]
        }

    assert ("book/layer-partitioning", "", True) in pages("tensor parallelism")
    assert {("book/museum", "", True), ("book/cluster", "", True)} <= pages(
        "deadlock"
    )
    # The section that a place begins, and a word of the book's own.
    section = ("book/network-partitioning", "recomputation", True)
    assert section in pages("activation checkpointing")
    assert ("book/collectives", "", True) in pages("ring")
