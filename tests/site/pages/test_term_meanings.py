"""A link to a word of the glossary says what the word means."""

import re

import pytest

LINK = re.compile(
    r'<a class="reference internal" href="([^"]*#term-[^"]*)"([^>]*)>'
    r'<span class="xref std std-term">'
)
BUBBLE = (
    "The time that devices of a pipeline are idle because they wait for "
    "others. It is given as a share of the total time, or of the ideal time, "
    "in which all devices work without waiting."
)


@pytest.mark.slow
def test_a_link_to_a_word_says_what_it_means(site):
    pages = [page.read_text("utf-8") for page in site.glob("book/*.html")]
    links = [link for page in pages for link in LINK.findall(page)]
    said = {
        place.partition("#")[2]: re.search(r' title="([^"]+)"', rest)
        for place, rest in links
    }
    assert [place for place, title in said.items() if not title] == []
    assert said["term-bubble"][1] == BUBBLE
    assert not any("Explained in" in title[1] for title in said.values())
