"""The chapters' opening boxes, and the map of them on the front page."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ITEMS = ("question", "able to", "need", "takes", "outputs")


def listed(caption):
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))["parts"]
    (part,) = [part for part in parts if part["caption"] == caption]
    return [Path(entry["file"]).name for entry in part["chapters"]]


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


def minutes(words):
    """Return the minutes of "about 45 minutes", "half an hour", "an hour"."""
    if found := re.search(r"about (\d+) minutes", words):
        return int(found[1])
    return 30 if "half an hour" in words else 60 * ("an hour" in words)


def cards():
    """Return for each chapter on the map what its card says."""
    found = re.findall(
        r"\*\*\{doc\}`([\w-]+)`\*\*(.*?):::", markdown("index"), re.S
    )
    return dict(found)


CHAPTERS = listed("Chapters")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_box_says_five_things(name):
    paragraphs = box(name)
    for item, paragraph in zip(ITEMS, paragraphs):
        assert re.match(rf"\*\*[^*]*{item}[^*]*\*\*", paragraph), item
    assert len(paragraphs) == len(ITEMS)
    assert minutes(paragraphs[3]) >= 10
    assert "?" in paragraphs[0]


def test_the_map_has_every_chapter_in_its_order():
    assert list(cards()) == CHAPTERS


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_card_says_what_the_box_says(name):
    card, paragraphs = cards()[name], box(name)
    assert f"*takes* {minutes(paragraphs[3])} minutes" in card
    pages = r"\{doc\}`([\w-]+)`"
    needs = card.split("*gives*")[0]
    linked = set(re.findall(pages, needs))
    assert linked == set(re.findall(pages, paragraphs[2]))


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_comes_after_those_that_it_needs(name):
    needed = re.findall(r"\{doc\}`([\w-]+)`", box(name)[2])
    later = CHAPTERS[CHAPTERS.index(name) :]
    assert not set(needed) & set(later)
