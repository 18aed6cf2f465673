"""Write what the search of a built site knows: `_static/search/words.js`.

Sphinx lists for each word the pages on which it stands, and not how often.
Here each word has a weight on each page, by BM25 (Robertson and Zaragoza, *The
Probabilistic Relevance Framework: BM25 and Beyond*, 2009): it grows with the
count of the word on the page, up to a bound, and is larger for a word of few
pages. A page's rank is the sum of the weights of the words that a reader has
typed; `book/_static/search/rank.js` adds them up.

Sphinx's index has the rest: the names of the package, and the entries of the
glossary, which `book/_extensions/search_words.py` leads to pages.
"""

import json
import math
import re
from collections import Counter
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

from sphinx.search.en import SearchEnglish

# The package is found by its own names, below all pages.
LAST = ("api", "api-simulated", "api-runs")
GLOSSARIES = ("book/terms", "book/notation")
# These pages name what other pages explain.
LISTS = (
    "about",
    "bibliography",
    "cheat-sheet",
    "exercises",
    "index",
    "limits-comparisons",
    "limits-programs",
    "notation",
    "teaching",
    "terms",
)
OF_LISTS = 0.5
# A word of a heading counts as so many words of the text, and one of a program
# or of what it prints as so little: most of them explain nothing.
IN_HEADING = 8
IN_PROGRAM = 0.1
# BM25's two constants: K1, how soon further words of a kind count for nothing,
# and B, how much a long page counts as long.
K1 = 1.2
B = 0.5
STEPS = 10  # weights are written as whole numbers, in tenths

# Words of questions, in addition to those that Sphinx leaves out.
OF_QUESTIONS = (
    "can does do get how i me much many my need should use using what when"
    " where which who why versus vs you your"
)
STOP = SearchEnglish.stopwords | set(OF_QUESTIONS.split())
ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
SILENT = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)
HEADING = re.compile(
    r"<h[123]\b[^>]*>(?P<text>.*?)"
    r'<a class="headerlink" href="#(?P<place>[^"]*)"',
    re.DOTALL,
)
LINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
PROGRAM = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
INDEX = re.compile(r"Search\.setIndex\((.*)\)", re.DOTALL)
WORD = re.compile(r"\w+")
# Normalisation is normalization. Noise becomes noize, in texts and questions.
BRITISH = re.compile(r"is(e[drs]?|ers|ing|ations?)$")


class Heading(NamedTuple):
    """A heading of a page, and the id that leads to it."""

    text: str
    anchor: str


class Page(NamedTuple):
    """What the article of a page says."""

    text: str
    programs: str  # and what they print
    headings: list[Heading]


# Most of the words of a text have stood before.
stem = cache(SearchEnglish({}).stem)


def stems(text: str) -> list[str]:
    """Return the words of a text as the search compares them.

    Of "Do the pipelines use no_sync? 2 of 3" these are "pipelin" and
    "no_sync": lower case, without endings, numbers and common words. The same
    is done in `book/_static/search/rank.js`.
    """
    words = (word.lower() for word in WORD.findall(text))
    return [
        stem(BRITISH.sub(r"iz\1", word))
        for word in words
        if len(word) > 1 and word not in STOP and not word.isdigit()
    ]


def plain(html: str) -> str:
    """Return the text of a piece of HTML."""
    return unescape(TAG.sub(" ", html)).strip()


def page_of(html: str) -> Page:
    """Return what a built page says."""
    article = SILENT.sub(" ", ARTICLE.search(html)[0])  # type: ignore[index]
    headings = [
        Heading(" ".join(plain(heading["text"]).split()), heading["place"])
        for heading in HEADING.finditer(article)
    ]
    text = LINK.sub("", article)
    programs = " ".join(PROGRAM.findall(text))
    return Page(plain(PROGRAM.sub(" ", text)), plain(programs), headings)


def counts_of(page: Page) -> dict[str, float]:
    """Return how often each word stands on a page.

    In headings it counts more, and in programs less.
    """
    counts: dict[str, float] = {}
    headings = " ".join(heading.text for heading in page.headings)
    for text, counted in (
        (page.text, 1),
        (headings, IN_HEADING),
        (page.programs, IN_PROGRAM),
    ):
        for word, count in Counter(stems(text)).items():
            counts[word] = counts.get(word, 0) + counted * count
    return counts


def weights(
    counts: dict[str, dict[str, float]], factors: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Return the weight of each word on each page that has it, by BM25.

    Args:
        counts: For each page, how often each word stands on it.
        factors: What the weights of some pages are multiplied by.
    """
    lengths = {page: sum(words.values()) for page, words in counts.items()}
    mean = sum(lengths.values()) / len(lengths)
    pages_with = Counter(word for words in counts.values() for word in words)
    found: dict[str, dict[str, float]] = {word: {} for word in pages_with}
    for page, words in counts.items():
        relative = 1 - B + B * lengths[page] / mean
        for word, count in words.items():
            without = len(counts) - pages_with[word]
            rare = math.log(1 + (without + 0.5) / (pages_with[word] + 0.5))
            often = count * (K1 + 1) / (count + K1 * relative)
            found[word][page] = rare * often * factors.get(page, 1)
    return found


def entries(index: dict[str, Any]) -> dict[str, list[tuple[int, str]]]:
    """Return where each entry of the glossary leads, by its words."""
    found: dict[str, list[tuple[int, str]]] = {}
    for words, places in index["indexentries"].items():
        leads = [(page, place) for page, place, is_main in places if is_main]
        # Some entries are called by several words: scatter, gather.
        for name in words.split(","):
            if key := " ".join(stems(name.replace("_", " "))):
                found.setdefault(key, []).extend(leads)
    return {key: leads for key, leads in found.items() if leads}


def last_pages(index: dict[str, Any]) -> list[int]:
    """Return the pages that describe the package."""
    pages = index["docnames"]
    known = [f"book/{name}" for name in LAST]
    return [pages.index(page) for page in known if page in pages]


def names(index: dict[str, Any]) -> list[tuple[str, int, str, str]]:
    """Return each name of the package, its page, its anchor and its kind."""
    last = last_pages(index)
    return [
        (name := f"{module}.{short}", page, anchor.strip("-") or name, kind[2])
        for module, objects in index["objects"].items()
        for page, number, _, anchor, short in objects
        if page in last and (kind := index["objnames"][str(number)])
    ]


def search_index(site: Path) -> dict[str, Any]:
    """Return what the search knows of a built site. Pages are numbers."""
    script = (site / "searchindex.js").read_text("utf-8")
    of_sphinx = json.loads(INDEX.search(script)[1])  # type: ignore[index]
    pages = of_sphinx["docnames"]
    texts = {
        page: page_of((site / f"{page}.html").read_text("utf-8"))
        for page in pages
    }
    counts = {page: counts_of(text) for page, text in texts.items()}
    factors = {f"book/{name}": OF_LISTS for name in LISTS}
    number = {page: i for i, page in enumerate(pages)}
    return {
        "pages": pages,
        "last": last_pages(of_sphinx),
        "steps": STEPS,
        "stop": sorted(STOP),
        "headings": {
            number[page]: [(h.text, h.anchor) for h in text.headings]
            for page, text in texts.items()
        },
        "glossaries": [number[page] for page in GLOSSARIES if page in number],
        "entries": entries(of_sphinx),
        "names": names(of_sphinx),
        "words": {
            word: [
                figure
                for page, weight in on_pages.items()
                for figure in (number[page], round(STEPS * weight))
            ]
            for word, on_pages in weights(counts, factors).items()
        },
    }


def write_index(site: Path) -> None:
    """Write the index of a built site, for its search page."""
    text = json.dumps(
        search_index(site), ensure_ascii=False, separators=(",", ":")
    )
    target = site / "_static" / "search" / "words.js"
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"const searchIndex = {text};\n", encoding="utf-8")
