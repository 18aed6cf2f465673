"""The site builds without a warning, and its pages ask no one for anything."""

import json
from html.parser import HTMLParser

import pytest

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))


class Requests(HTMLParser):
    """Collect the addresses that a browser fetches to show a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        fetched = given.get("src")
        if tag == "link" and given.get("rel") in ("stylesheet", "preload"):
            fetched = given.get("href")
        if fetched:
            self.addresses.append(fetched)


def requests(text):
    parser = Requests()
    parser.feed(text)
    return parser.addresses


@pytest.mark.slow
def test_pages_make_no_request_to_another_server(site):
    pages = sorted((site / "book").glob("*.html"))
    assert len(pages) >= 5
    for page in pages:
        addresses = requests(page.read_text(encoding="utf-8"))
        assert len(addresses) > 5
        assert [a for a in addresses if a.startswith(("http", "//"))] == []


def figures(path):
    """Yield what says of each cell with a picture how it is shown."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if any(
                kind.startswith("image/") for kind in output.get("data", {})
            ):
                yield cell["id"], cell["metadata"].get("mystnb", {})


def test_every_figure_has_a_number_and_a_text_that_stands_in_for_it():
    found = [(n, *cell) for n in NOTEBOOKS for cell in figures(n)]
    assert len(found) > 40
    for path, cell, shown in found:
        place = f"{path.name}, cell {cell}"
        assert shown.get("figure", {}).get("name"), place
        assert len(shown["figure"].get("caption", "")) > 10, place
        assert len(shown.get("image", {}).get("alt", "")) > 20, place


def test_a_request_is_seen():
    page = '<script src="https://x.org/a.js"></script><img src="b.png">'
    assert requests(page) == ["https://x.org/a.js", "b.png"]
    style = '<link rel="stylesheet" href="//x.org/c.css">'
    assert requests(style) == ["//x.org/c.css"]
