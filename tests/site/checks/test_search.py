"""How the search ranks pages: rank.js, on a small index, in node."""

import json

import pytest
import search_index
from sphinx.search.en import SearchEnglish

from tests.repository import ROOT

# Pages: 0 a list of words, 1 and 2 chapters, 3 and 4 the package.
INDEX = {
    "pages": [
        "book/terms",
        "book/ring",
        "book/star",
        "book/api",
        "book/api-runs",
    ],
    "last": [3, 4],
    "glossaries": [0],
    "steps": 10,
    "stop": ["the", "how"],
    "headings": {
        "0": [["Words", "words"]],
        "1": [["Rings", "rings"], ["A fast <ring>", "a-fast-ring"]],
        "2": [["Stars", "stars"]],
        "3": [["The package", "the-package"]],
        "4": [["Ranks and scripts", "ranks-and-scripts"]],
    },
    "entries": {
        "batch norm": [[2, ""], [0, "term-batch-norm"]],
        "star": [[2, "root"], [0, "term-star"]],
        "fast batch": [[2, ""], [1, ""], [0, "term-fast-batch"]],
    },
    "names": [
        ["dpkit.fast_ring", 3, "dpkit.fast_ring", "Python function"],
        ["dpkit.ring", 4, "dpkit.ring", "Python function"],
    ],
    "words": {
        "ring": [0, 5, 1, 30, 2, 10, 3, 90],
        "fast": [1, 20],
        "batch": [1, 40],
        "norm": [1, 40],
        "star": [1, 30, 2, 9],
        "throughput": [2, 7],
    },
}


@pytest.fixture
def run(said_by, tmp_path):
    """Evaluate an expression where rank.js has been loaded."""
    rank = (ROOT / "book/_static/search/rank.js").read_text("utf-8")
    script = "\n".join(
        [
            "const Search = {setIndex() {}, htmlToText: (...given) => given};",
            SearchEnglish.js_stemmer_code,
            f"const searchIndex = {json.dumps(INDEX)};",
            rank,
        ]
    )

    def evaluate(expression):
        said = said_by(f"{script}\nconsole.log(JSON.stringify({expression}))")
        return json.loads(said)

    return evaluate


def test_the_page_that_says_a_word_most_comes_first_and_the_package_last(run):
    pages, names = run("[rankPages('the rings'), rankNames('ring')]")
    assert [found["page"] for found in pages] == [1, 2, 0, 3]
    assert not any("place" in found for found in pages)
    assert [(found["title"], found["page"]) for found in names] == [
        *(("dpkit.ring", 4), ("dpkit.fast_ring", 3))
    ]
    assert names[0]["about"] == "Python function, in Ranks and scripts"


def test_a_heading_with_all_words_is_where_a_result_leads(run):
    last = run("rank('fast ring').at(-1)")
    title = "Rings &gt; A fast &lt;ring&gt;"
    assert last[:4] == ["book/ring", title, "#a-fast-ring", None]


def test_what_is_quoted_is_in_the_article_and_no_formula_that_is_drawn(run):
    html = "a <math><mi>k</mi></math> of <svg>drawn</svg> k"
    asked = f"Search.htmlToText({html!r}, place)"
    found = run(f"['#ring', ''].map((place) => {asked})")
    quoted = "a   of   k"
    assert found == [[quoted, "#ring"], [quoted, "article"]]


def test_an_entry_of_the_glossary_leads_before_all_weights(run):
    pages = run("['batch norm', 'batchnorm', 'Star'].map(rankPages)")
    first, as_one_word, last = pages
    assert as_one_word[:2] == first[:2]
    # Its page, the glossary, and then the page that says its words most.
    assert [found["page"] for found in first] == [2, 0, 1]
    assert first[1]["place"] == "term-batch-norm"
    assert [(found["page"], found.get("place")) for found in last] == [
        *((2, "root"), (0, "term-star"), (1, None))
    ]


def test_an_entry_among_other_words_adds_to_its_page(run):
    pages = run("rankPages('how fast is a batchnorm')")
    assert {found["page"]: found["score"] for found in pages} == {
        **{1: 2, 2: 4},  # of the word fast, and of the two of the entry
        0: 0,
    }


def test_a_part_of_a_word_finds_it_and_what_nobody_wrote_finds_nothing(run):
    found = run("['through', 'xyz', '12'].map(rankPages)")
    assert [[page["page"] for page in pages] for pages in found] == [
        *([2], [], [])
    ]


def test_python_and_the_page_cut_words_alike(run):
    text = (ROOT / "book" / "terms.md").read_text("utf-8")
    text += "\nnormalisation, synchronised optimisers"
    words = search_index.WORD.findall(text)
    assert len(set(words)) > 400
    stop = json.dumps(sorted(search_index.STOP))
    got = run(f"(searchIndex.stop = {stop}, stems({json.dumps(text)}))")
    assert got == search_index.stems(text)


def test_the_page_that_an_entry_names_first_comes_first(run):
    """Page 1 says both words, and page 2 neither."""
    found = run("rankPages('fast batch')")
    assert [result["page"] for result in found] == [2, 1, 0]


def test_the_words_of_an_entry_may_be_in_another_order(run):
    found = run("rankPages('batch, how fast')")
    assert [result["page"] for result in found] == [2, 1, 0]
