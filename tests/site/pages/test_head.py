"""What the head and the foot of a page say of it."""

import re
from datetime import date

import head
import imprint
import pytest
import yaml

from tests.repository import ROOT


def tags(page):
    """Return the meta tags of a page: name or property -> contents."""
    found = {}
    pattern = r'<meta (?:name|property)="([^"]+)"\s+content="([^"]*)"'
    for name, content in re.findall(pattern, page.read_text("utf-8")):
        found.setdefault(name, []).append(content)
    return found


def chapters(site):
    return sorted((site / "book").glob("*.html"))


@pytest.mark.slow
def test_every_page_has_one_viewport(site):
    pages = [*site.rglob("book/*.html"), site / "search.html"]
    for page in [*pages, site / "404.html", site / "_modules/index.html"]:
        assert len(tags(page)["viewport"]) == 1, page.name


@pytest.mark.slow
def test_a_page_is_described_in_its_own_words(site):
    for page in chapters(site):
        if "What stood here stands on these pages" in page.read_text("utf-8"):
            continue  # a page that is gone
        found = tags(page)
        (words,) = found["description"]
        assert 40 < len(words) <= 210, page.name
        assert found["og:description"] == [words]
        (title,) = found["og:title"]
        assert f"<title>{title} &#8212;" in page.read_text("utf-8")


@pytest.mark.slow
def test_without_an_address_none_is_made_up(site):
    assert not (site / "sitemap.xml").exists()
    for page in chapters(site):
        assert {"og:url", "og:image"}.isdisjoint(tags(page))
        assert 'rel="canonical"' not in page.read_text("utf-8")


@pytest.mark.slow
def test_the_links_of_the_page_that_is_not_found_begin_at_the_top(site):
    text = (site / "404.html").read_text("utf-8")
    _, words = text.split("<h1>No such page</h1>")
    words = words.split("</p>")[0]
    for page in ("book/index.html", "search.html"):
        assert f'<a href="/{page}">' in words
    links = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert len(links) > 40
    for link in links:
        assert link.startswith(("/", "#")), link
        if link.startswith("/"):
            path = re.split("[?#]", link)[0].lstrip("/")
            assert (site / path).exists(), link


@pytest.mark.slow
def test_a_page_has_its_title_once(site):
    """Else the search would quote what the theme adds for paper."""
    for page in chapters(site):
        assert page.read_text("utf-8").count("<h1") == 1, page.name


@pytest.mark.slow
def test_no_button_lies_over_the_page(site):
    for page in chapters(site):
        assert "pst-back-to-top" not in page.read_text("utf-8"), page.name


@pytest.mark.slow
def test_every_page_says_which_version_it_is(site):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    for page in chapters(site):
        text = page.read_text("utf-8")
        assert f"<p>Version {cited['version']}" in text
        for author in cited["authors"]:
            assert f"By {author['name']}" in text


def test_a_version_has_the_day_of_the_last_commit():
    assert (
        imprint.version({"version": "1.2.0"}, date(2026, 3, 1))
        == "Version 1.2.0, 1 March 2026."
    )
    assert imprint.version({"version": "1.2.0"}, None) == "Version 1.2.0."


def test_a_folder_outside_of_git_has_no_day(tmp_path):
    assert imprint.last_commit(tmp_path) is None


def test_a_contact_is_a_link():
    mail = {"name": "the authors", "email": "a&b@x.org"}
    page = {"name": "the authors", "website": "https://x.org/"}
    assert imprint.contacts({"contact": [mail, page]}) == (
        '<a href="mailto:a&amp;b@x.org">Write to the authors</a>. '
        '<a href="https://x.org/">Write to the authors</a>.'
    )
    assert imprint.contacts({}) == ""


def test_only_a_second_viewport_is_taken_away():
    kept = '<meta name="description" content="a" />'
    double = f'<meta name="viewport" content="b" />\n{kept}'
    assert head.VIEWPORT.sub("", double) == kept
