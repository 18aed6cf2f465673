"""What the search knows of the pages, and how it weighs their words."""

import json
from collections import Counter

import pytest
import search_index

HTML = """<title>sidebar</title><nav>sidebar</nav>
<article class="bd-article"><section id="rings">
<h1><span class="section-number">1. </span>Rings &amp; stars<a
 class="headerlink" href="#rings" title="Link">#</a></h1>
<p>The <code>no_sync</code> of a ring<svg><text>drawn</text></svg></p>
<script>{"never": "read"}</script></section></article>
<footer>sidebar</footer>""".replace("<a\n", "<a")


def test_a_page_says_what_its_article_says():
    page = search_index.page_of(HTML)
    assert page.headings == [("1. Rings & stars", "rings")]
    assert search_index.stems(page.text) == ["ring", "star", "no_sync", "ring"]
    counts = search_index.counts_of(page)
    assert counts == {"ring": 2 + 8, "star": 1 + 8, "no_sync": 1}


def test_words_of_programs_count_little():
    program = "<p>A star.</p><pre>send(star); send(ring)</pre></section>"
    page = search_index.page_of(HTML.replace("</section>", program))
    counts = search_index.counts_of(page)
    assert counts["send"] == pytest.approx(2 * 0.1)
    assert counts["star"] == pytest.approx(2 + 8 + 0.1)


def test_words_are_compared_by_their_stems():
    said = "How does checkpointing save? Checkpoints, 3 of 1F1B"
    assert search_index.stems(said) == [
        *("checkpoint", "save", "checkpoint", "1f1b")
    ]


def test_british_words_are_those_of_the_book():
    british = "normalisation synchronised optimiser noise this"
    american = "normalization synchronized optimizer noise this"
    assert search_index.stems(british) == search_index.stems(american)


def test_a_word_weighs_more_where_it_stands_often():
    """By the formula, computed by hand for two pages of 4 and of 8 words."""
    counts = {"a": Counter(x=3, y=1), "b": Counter(x=1, y=7)}
    found = search_index.weights(counts, {})
    rare = 0.1823215567939546  # ln(1 + 0.5 / 2.5)
    assert found["x"] == pytest.approx(
        {
            "a": rare * 3 * 2.2 / (3 + 1.2 * (0.5 + 0.5 * 4 / 6)),
            "b": rare * 1 * 2.2 / (1 + 1.2 * (0.5 + 0.5 * 8 / 6)),
        }
    )
    assert found["y"]["b"] > found["y"]["a"]


def test_a_word_of_few_pages_weighs_more_than_one_of_all():
    counts = {page: Counter(common=2) for page in "abcd"}
    counts["a"]["rare"] = 2
    found = search_index.weights(counts, {})
    assert found["rare"]["a"] > 5 * found["common"]["a"] > 0


def test_a_page_that_only_lists_weighs_less():
    counts = {page: Counter(ring=2) for page in "ab"}
    found = search_index.weights(counts, {"b": 0.5})
    assert found["ring"]["b"] == found["ring"]["a"] / 2


OF_SPHINX = {
    "docnames": ["book/api", "book/ring", "book/terms"],
    "indexentries": {
        "all_reduce": [[1, "", True], [2, "term-all_reduce", True]],
        "scatter, gather": [[1, "halves", True]],
        "send() (in module dpkit.queues)": [[0, "dpkit.queues.send", False]],
    },
    "objects": {
        "dpkit.queues": [[0, 0, 1, "", "send"], [0, 1, 1, "-", "Queue"]],
        "dpkit.rings": [[1, 0, 1, "", "elsewhere"]],
    },
    "objnames": {
        "0": ["py", "function", "Python function"],
        "1": ["py", "class", "Python class"],
    },
}


@pytest.fixture
def index(tmp_path):
    """The index of a site of three pages."""
    (tmp_path / "book").mkdir()
    for page in OF_SPHINX["docnames"]:
        (tmp_path / f"{page}.html").write_text(HTML, encoding="utf-8")
    script = f"Search.setIndex({json.dumps(OF_SPHINX)})"
    (tmp_path / "searchindex.js").write_text(script, encoding="utf-8")
    (tmp_path / "_static").mkdir()
    search_index.write_index(tmp_path)
    written = tmp_path / "_static" / "search" / "words.js"
    text = written.read_text("utf-8")
    return json.loads(text.removeprefix("const searchIndex = ")[:-2])


def test_an_entry_leads_to_its_pages_by_each_of_its_names(index):
    assert index["entries"] == {
        "all reduc": [[1, ""], [2, "term-all_reduce"]],
        "scatter": [[1, "halves"]],
        "gather": [[1, "halves"]],
    }


def test_names_are_those_that_the_page_of_the_package_describes(index):
    assert index["headings"].keys() == {"0", "1", "2"}
    for on_pages in index["words"].values():
        assert on_pages[::2] == [0, 1, 2]
    assert index["names"] == [
        ["dpkit.queues.send", 0, "dpkit.queues.send", "Python function"],
        ["dpkit.queues.Queue", 0, "dpkit.queues.Queue", "Python class"],
    ]
    assert index["last"] == [0]
