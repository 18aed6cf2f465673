"""A symbol has one meaning in the whole book: that of the page `notation`.

Its first table has the symbols of the book, and the pages on which each one
occurs. Its second has letters that one page alone uses.
"""

import json
import re
from functools import cache

import pytest

from tests.repository import ROOT

MATH = re.compile(
    r"(?s)\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$"
    r"|```\{math\}\n(?::\w+:[^\n]*\n)*(.*?)```"
)
# What is no symbol: words, names of functions, spaces, delimiters.
WORDS = re.compile(
    r"\\(text|mathrm|operatorname|textrm|mathsf)\{[^{}]*\}|\\label\{[^}]*\}"
    r"|\\(begin|end)\{[^}]*\}"
)
SMALL = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"
    " pi rho sigma tau upsilon phi chi psi omega"
).split()
GREEK = {"ell", *SMALL, *(name.title() for name in SMALL)}
SYMBOL = re.compile(r"\\math(?:bf|cal)\{[^{}]\}|\\[a-zA-Z]+|[a-zA-Z]")
PAGES = sorted(
    path
    for path in ROOT.glob("book/*")
    if path.suffix in (".md", ".ipynb")
    and path.stem not in ("notation", "README")
)


def prose(path):
    """Return the text of a page, and the captions of its figures."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    found = []
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            found.append("".join(cell["source"]))
        figure = cell["metadata"].get("mystnb", {}).get("figure", {})
        found.append(figure.get("caption", ""))
    return "\n\n".join(found)


def symbols(text):
    """Return the symbols of a text's mathematics."""
    text = re.sub(r"(?ms)^```(?!\{math\}|\{exercise).*?^```", "", text)
    text = re.sub(r"`[^`\n]*`", "", text)
    found = set()
    text = re.sub(r"\\\\\[[\d.]+em\]", "", text)  # the space below a line
    for parts in MATH.findall(text):
        formula = re.sub(r"\$[^$]*\$", "", WORDS.sub(" ", "".join(parts)))
        for symbol in SYMBOL.findall(formula):
            is_letter = not symbol.startswith("\\") or symbol[1:] in GREEK
            if is_letter or symbol.startswith(("\\mathbf", "\\mathcal")):
                found.add(symbol)
    return found


@cache
def tables():
    """Return the rows of the two tables: the symbols, and the letters."""
    text = (ROOT / "book/notation.md").read_text("utf-8")
    section = text.split("## Symbols")[1].split("## ")[0]
    found = []
    for table in re.findall(r"(?m)(?:^\|.*\n)+", section):
        rows = [line.split("|")[1:-1] for line in table.splitlines()]
        found.append(rows[2:])
    return found


@cache
def listed():
    """Return the pages of each symbol; None stands for all pages."""
    found = {}
    anywhere = set()
    for symbol, _, _, pages in tables()[0]:
        names = set(re.findall(r"\{doc\}`([\w-]+)`", pages))
        for each in symbols(symbol):
            found.setdefault(each, set()).update(names)
            if not names:
                anywhere.add(each)
    return found | dict.fromkeys(anywhere)


@cache
def letters():
    """Return the letters that each page uses alone."""
    found = {}
    for page, letter, _ in tables()[1]:
        (name,) = re.findall(r"\{doc\}`([\w-]+)`", page)
        found.setdefault(name, set()).update(symbols(letter))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_symbol_means_what_the_notation_says(path):
    name = path.stem
    known = {
        symbol
        for symbol, pages in listed().items()
        if pages is None or name in pages
    }
    known |= letters().get(name, set())
    assert symbols(prose(path)) - known == set(), "not in book/notation.md"


def test_each_page_of_a_symbol_has_it():
    used = {path.stem: symbols(prose(path)) for path in PAGES}
    for symbol, pages in listed().items():
        assert not [page for page in pages or () if symbol not in used[page]]
    for page, own in letters().items():
        assert own <= used[page], f"{page} does not use them"


def test_a_letter_of_one_page_is_no_symbol_of_the_book():
    for page, own in letters().items():
        assert not own & set(listed()), page


def test_what_is_a_symbol():
    text = r"$T_\text{ring} = 2\,\frac{k-1}{k}\,n\beta$, $\mathbf{g}_r$, `$q`"
    assert symbols(text) == {"T", "k", "n", r"\beta", r"\mathbf{g}", "r"}
    assert symbols(r"$\Psi \to \max \ell$") == {r"\Psi", r"\ell"}
