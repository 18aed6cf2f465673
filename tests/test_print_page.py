"""The page to print holds all pages, and its links lead to places on it."""

import pytest
from bs4 import BeautifulSoup
from print_page import printable

SINGLE = """<html><head><title>Book</title>
<link rel="stylesheet" href="_static/book.css"/></head><body>
<nav>of the site</nav>
<article><section id="book"><h1>Book</h1>
<p><a href="book/index.html#document-book/one">One</a>
<a href="../print.html">print</a></p>
<div class="toctree-wrapper"><span id="document-book/one"></span>
<section id="one"><h2>1. One<a class="headerlink" href="#one">#</a></h2>
<p><a href="#summary">below</a></p>
<div class="solution dropdown admonition" id="s">answer</div>
<details><summary>code</summary>x = 1</details>
<section id="summary"><h3>Summary</h3></section></section>
<span id="document-book/two"></span><section id="two"><h2>2. Two</h2>
<p><a href="#summary">below</a> <a href="https://x.org/#summary">far</a></p>
<section id="summary"><h3>Summary</h3></section></section></div>
</section></article></body></html>"""
NEIGHBOUR = """<html><head><title>Search</title>
<link rel="stylesheet" href="_static/book.css?v=88ad"/>
<script src="_static/katex.min.js?v=5cc8"></script>
<script src="_static/searchtools.js"></script></head></html>"""


@pytest.fixture(scope="module")
def page():
    return BeautifulSoup(printable(SINGLE, NEIGHBOUR), "html.parser")


def test_ids_are_unique(page):
    ids = [tag["id"] for tag in page.find_all(id=True)]
    assert len(ids) == len(set(ids)) == 8
    assert {"one--summary", "two--summary"} <= set(ids)


def test_a_link_leads_to_the_place_of_its_own_page(page):
    hrefs = [tag["href"] for tag in page.section.find_all("a")]
    one, two = "#document-book/one", "#document-book/two"
    assert hrefs == [
        *(one, two),  # the contents
        *(one, "#"),
        *("#one--summary", "#two--summary", "https://x.org/#summary"),
    ]


def test_what_a_click_would_show_is_shown(page):
    assert page.details.has_attr("open")
    assert page.find(id="s")["class"] == ["solution", "admonition"]
    assert page.select(".headerlink") == []


def test_the_frame_of_the_site_is_left_out(page):
    assert page.nav["aria-label"] == "Contents"
    assert page.title.text == "Book"
    scripts = [tag["src"] for tag in page.find_all("script")]
    assert scripts == ["_static/katex.min.js?v=5cc8"]
    sheets = [tag["href"] for tag in page.find_all("link")]
    assert sheets == ["_static/book.css?v=88ad"]
