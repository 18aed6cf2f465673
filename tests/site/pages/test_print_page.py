"""A page to print holds a part of the book; its links lead to places on it."""

import re

import print_page
import pytest
import yaml
from bs4 import BeautifulSoup
from sphinx.util.matching import Matcher

from tests.repository import ROOT

HEAD = """<html><head><title>One - Book</title>
<link rel="stylesheet" href="../_static/book.css?v=88ad"/>
<script src="../_static/katex.min.js?v=5cc8"></script>
<script src="../_static/searchtools.js"></script></head><body>
<h1>of the site</h1><article>"""
PAGES = {
    "index": """<section id="book"><h1>Book</h1>
<p><a href="one.html">One</a> <a href="../print-b.html">print</a></p>
</section></article>""",
    "one": """<section id="one">
<h1>1. One<a class="headerlink" href="#one">#</a></h1>
<p><a href="#summary">below</a> <img src="../_images/a.svg"/></p>
<div class="solution dropdown admonition" id="s">answer</div>
<a href="../_modules/f.html"><span class="viewcode-link">source</span></a>
<details><summary>code</summary>x = 1</details>
<section id="summary"><h2>Summary</h2></section></section></article>""",
    "two": """<section id="two"><h1>2. Two</h1>
<figure class="live"><div class="live-controls">
<button>start again</button></div><p>slow</p>
<div class="live-steps"><button>on</button></div></figure>
<p><a href="#summary">below</a> <a href="https://x.org/#summary">far</a>
<a href="one.html#summary">the other</a> <a href="one.html#s">s</a>
<a href="six.html#s">elsewhere</a> <a href="../search.html">find</a></p>
<section id="summary"><h2>Summary</h2></section></section></article>""",
}


@pytest.fixture(scope="module")
def page():
    pages = {name: HEAD + html for name, html in PAGES.items()}
    return BeautifulSoup(print_page.printable("A part", pages), "html.parser")


def test_ids_are_unique(page):
    ids = [tag["id"] for tag in page.find_all(id=True)]
    assert len(ids) == len(set(ids)) == 9
    assert {"one--summary", "two--summary"} <= set(ids)


def test_a_link_leads_to_the_place_of_its_own_page(page):
    hrefs = [tag["href"] for tag in page.find_all("a")]
    index, one, two = (f"#document-{name}" for name in PAGES)
    assert hrefs == [
        *(index, one, two),  # the contents
        *(one, "print-b.html"),
        *("#one--summary", "#two--summary", "https://x.org/#summary"),
        *("#one--summary", "#s", "book/six.html#s", "search.html"),
    ]
    ids = {f"#{tag['id']}" for tag in page.find_all(id=True)}
    assert {href for href in hrefs if href.startswith("#")} <= ids
    assert page.img["src"] == "_images/a.svg"


def test_headings_are_one_level_deeper(page):
    found = [tag.name for tag in page.find_all(["h1", "h2", "h3"])]
    assert found == ["h1", "h2", "h2", "h3", "h2", "h3"]
    assert page.h1.text == page.title.text == "A part"


def test_what_a_click_would_show_is_shown(page):
    assert page.details.has_attr("open")
    assert page.find(id="s")["class"] == ["solution", "admonition"]
    assert page.select(".headerlink, button") == []
    assert page.select_one(".live").text.strip() == "slow"


def test_the_frame_of_the_site_is_left_out(page):
    assert page.nav["aria-label"] == "Contents"
    scripts = [tag["src"] for tag in page.find_all("script")]
    assert scripts == ["_static/katex.min.js?v=5cc8"]
    sheets = [tag["href"] for tag in page.find_all("link")]
    assert sheets == ["_static/book.css?v=88ad"]


TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))


def test_each_page_of_the_book_is_in_one_part():
    parts = print_page.parts(TOC)
    names = [name for part in parts.values() for name in part]
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    is_excluded = Matcher(config["exclude_patterns"])
    files = [*ROOT.glob("book/*.md"), *ROOT.glob("book/*.ipynb")]
    assert sorted(names) == sorted(
        file.stem
        for file in files
        if not is_excluded(file.relative_to(ROOT).as_posix())
    )
    assert names[0] == "index"


def test_the_page_about_reading_leads_to_each_part():
    text = (ROOT / "book" / "how-to.md").read_text("utf-8")
    listed = re.findall(r'<a href="\.\./(print-[^"]*)">([^<]*)</a>', text)
    captions = [part["caption"] for part in TOC["parts"]]
    assert listed == [(print_page.file_of(name), name) for name in captions]
