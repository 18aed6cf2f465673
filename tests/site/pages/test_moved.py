"""The table of moved sections names pages of the book.

A build leaves out entries whose pages it does not have. So a name that is
misspelt would show nowhere. That each address is a place is checked in a
browser (scripts/check/moved.mjs).
"""

import tomllib

import pytest

from tests.repository import ROOT

PATH = ROOT / "book/_extensions/moved.toml"
MOVED = tomllib.loads(PATH.read_text("utf-8"))


def is_page(name):
    path = ROOT / "book" / name
    return any(path.with_suffix(end).exists() for end in (".ipynb", ".md"))


@pytest.mark.parametrize("name", MOVED)
def test_sections_moved_to_pages_of_the_book(name):
    renamed = MOVED[name].get("renamed", {}).values()
    pages = {*MOVED[name]["to"], *(to.partition("#")[0] for to in renamed)}
    assert [page for page in pages if not is_page(page)] == []


@pytest.mark.parametrize("name", MOVED)
def test_a_page_has_a_title_here_if_it_is_gone(name):
    assert ("title" in MOVED[name]) != is_page(name)
