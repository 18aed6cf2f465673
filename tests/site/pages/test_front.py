"""How the chapters open, and the map of them on the front page.

A chapter opens with its question. A box of three lines follows, and a note on
the outputs, which unfolds.
"""

import json
import re
from pathlib import Path

import pytest
import reading_time
import words

from tests.repository import ROOT

ITEMS = ("You will be able to", "You need", "It takes")


def markdown(name):
    """Return the text of a notebook's markdown cells."""
    text = (ROOT / "book" / f"{name}.ipynb").read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    kept = [c for c in cells if c["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in kept)


def box(name):
    """Return the paragraphs of a chapter's opening box."""
    start = ":::{admonition} This chapter\n"
    return markdown(name).split(start)[1].split("\n:::")[0].split("\n\n")


def minutes(name):
    """Return the minutes of a chapter: to read, and to do."""
    cells = [*words.on_the_page(ROOT, f"book/{name}.ipynb")]
    return reading_time.minutes_of(cells)


def cards():
    """Return for each chapter on the map what its card says."""
    found = re.findall(
        r"\*\*\{doc\}`([\w-]+)`\*\*(.*?):::", markdown("index"), re.S
    )
    return dict(found)


CHAPTERS = [Path(name).stem for name in words.chapters(ROOT)]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_with_its_question(name):
    before = markdown(name).split(":::{admonition} This chapter")[0]
    assert "?" in before, "no question before the box"
    assert words.num_words(before) <= 120, "the box comes late"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_box_has_three_short_lines(name):
    lines = box(name)
    assert [re.match(r"\*\*(.*?)\*\*", x)[1] for x in lines] == [*ITEMS]
    assert max(map(words.num_words, lines)) <= 40


@pytest.mark.parametrize("name", CHAPTERS)
def test_where_the_outputs_come_from_unfolds(name):
    after = markdown(name).split(":::{admonition} This chapter")[1]
    note = after.split("\n:::", 1)[1].lstrip().split("\n:::")[0]
    assert note.startswith(":::{admonition} Where the outputs come from\n")
    assert ":class: dropdown" in note


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_box_says_how_long_its_chapter_takes(name):
    said = reading_time.BOX.search(box(name)[2])
    assert said[0] == minutes(name).in_box(), "scripts/check/reading_time.py"


def test_the_map_has_every_chapter_in_its_order():
    assert list(cards()) == CHAPTERS


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_card_says_what_the_box_says(name):
    card, paragraphs = cards()[name], box(name)
    assert minutes(name).on_card() + "\n" in card
    pages = r"\{doc\}`([\w-]+)`"
    needs = card.split("*needs*")[1]
    linked = set(re.findall(pages, needs))
    assert linked == set(re.findall(pages, paragraphs[1]))


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_comes_after_those_that_it_needs(name):
    needed = re.findall(r"\{doc\}`([\w-]+)`", box(name)[1])
    later = CHAPTERS[CHAPTERS.index(name) :]
    assert not set(needed) & set(later)
