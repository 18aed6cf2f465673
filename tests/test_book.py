"""The site builds without a warning, and its pages ask no one for anything."""

from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).parent.parent


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


@pytest.mark.slow
def test_every_figure_has_a_text_that_stands_in_for_it(site):
    page = (site / "book" / "data-parallelism.html").read_text("utf-8")
    assert page.count("<figure") == page.count("<figcaption") >= 4
    assert page.count('<img alt="') >= 4


def test_a_request_is_seen():
    page = '<script src="https://x.org/a.js"></script><img src="b.png">'
    assert requests(page) == ["https://x.org/a.js", "b.png"]
    style = '<link rel="stylesheet" href="//x.org/c.css">'
    assert requests(style) == ["//x.org/c.css"]


@pytest.mark.parametrize(
    ("url", "button", "launch"),
    [
        ("", False, False),
        ("https://github.com/some/book", True, True),
        ("https://gitlab.com/some/book", True, True),
    ],
)
def test_buttons_derive_from_one_address(url, button, launch):
    path = REPOSITORY / "book" / "_extensions" / "repository_links.py"
    spec = util.spec_from_file_location("repository_links", path)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = SimpleNamespace(html_theme_options={"repository_url": url})
    module.add_buttons(None, config)
    options = config.html_theme_options
    assert options["use_repository_button"] == button
    assert bool(options["launch_buttons"]) == launch
