"""A link to a word of the glossary says what the word means."""

import re

import pytest

LINK = re.compile(
    r'<a class="reference internal" href="([^"]*#term-[^"]*)"([^>]*)>'
    r'<span class="xref std std-term">'
)
REPLICA = (
    "A full copy of the parameters on one device. Replicas hold equal values "
    "and share no memory."
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
    assert said["term-replica"][1] == REPLICA
    assert not any("Explained in" in title[1] for title in said.values())
