"""Find what makes the pages and the code hard to read.

Usage: words.py

``words.toml`` has the words that are refused. Each finding is printed with
its file and place, and is to be mended: any ends with exit status 1.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prose import SHOWN_LATER, Text, code, notebooks, pages, sentences

ROOT = Path(__file__).parent.parent.parent
WORD = re.compile(r"\w[\w'’-]*")
FOLDED = {"remove-cell", "remove-input", "hide-cell", "hide-input"}
SOLUTION_ENDS = re.compile(r"(?s).*\{solution-end\}\s*```\s*")
# What unfolds: from a fence with this class to the end of the fence.
DROPDOWN = re.compile(
    r"(?ms)^([:`]{3,})\{\S+\}[^\n]*\n:class:[^\n]*dropdown.*?^\1$"
)
RULES = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text("utf-8")
)


class Finding(NamedTuple):
    """Something to mend: its kind, its file and location, what is wrong."""

    kind: str
    file: str
    location: str
    what: str


def refused_words(text: Text) -> Iterator[Finding]:
    """Find refused words, clipped phrases and inverted sentences."""
    for number, (location, sentence) in enumerate(sentences(text)):
        rules = dict(RULES["refused"])
        if text.is_docstring and number == 0:
            rules |= RULES["openings"]
        for pattern, better in rules.items():
            for match in re.finditer(pattern, sentence, re.IGNORECASE):
                what = f'"{match[0]}": {better}'
                yield Finding("refused words", text.file, location, what)


def glossary(root: Path) -> dict[str, str]:
    """Return each term of the book's own -> the page that explains it."""
    found = {}
    content = (root / "book/notation.md").read_text("utf-8")
    for body in re.findall(r"(?s):::\{glossary\}\n(.*?)\n:::", content):
        for entry in re.split(r"\n\n(?=\S)", body):
            page = re.search(r"Explained in \{doc\}`([\w-]+)`", entry)
            if not page:
                raise ValueError(f"no page explains a term (term: {entry})")
            for head in re.findall(r"(?m)^\S.*", entry):
                found |= dict.fromkeys(head.split(", "), page[1])
    return found


def early_terms(root: Path) -> Iterator[Finding]:
    """Find on each page the first use of a term that comes too early."""
    contents = (root / "_toc.yml").read_text("utf-8")
    order = re.findall(r"(?:root|file): (book/[\w-]+)", contents)
    prose = [
        (order.index(text.file.partition(".")[0]), text.file, *sentence)
        for text in pages(root)
        if text.file.partition(".")[0] in order
        for sentence in sentences(text)
    ]
    for term, page in glossary(root).items():
        if term in RULES["terms"]["ordinary"]:
            continue
        form = re.compile(rf"(?i)\b{re.sub('[_ -]', '[_ -]', term)}(e?s)?\b")
        first = {}
        for number, file, location, sentence in reversed(prose):
            if number < order.index(f"book/{page}") and form.search(sentence):
                first[file] = location
        for file, location in first.items():
            what = f'"{term}" is explained in {page}'
            yield Finding("early terms", file, location, what)


def lonely_figures(root: Path) -> Iterator[Finding]:
    """Find figures to which no text refers."""
    prose = "".join(text.content for text in pages(root))
    for name, cell in notebooks(root):
        figure = cell["metadata"].get("mystnb", {}).get("figure", {})
        label = figure.get("name")
        if label and not re.search(rf"{label}(?![\w-])", prose):
            location = f"{name}, cell {cell['id']}"
            yield Finding("lonely figures", name, location, label)


def formatting_cells(root: Path) -> Iterator[Finding]:
    """Find visible cells that mostly print and format."""
    for name, cell in notebooks(root):
        folded = FOLDED & {*cell["metadata"].get("tags", [])}
        if cell["cell_type"] != "code" or folded:
            continue
        lines = [x for x in cell["source"].splitlines() if x.strip()]
        formats = [x for x in lines if re.search(r"\bprint\(|\bf[\"']", x)]
        if len(formats) > 2 and 2 * len(formats) > len(lines):
            location = f"{name}, cell {cell['id']}"
            what = f"{len(formats)} of {len(lines)} lines print or format"
            yield Finding("formatting cells", name, location, what)


def chapters(root: Path) -> list[str]:
    """Return the notebooks of the numbered parts in the table of contents."""
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    return [
        f"{chapter['file']}.ipynb"
        for part in contents["parts"]
        if part.get("numbered")
        for chapter in part["chapters"]
    ]


def on_the_page(root: Path, chapter: str) -> Iterator[dict[str, Any]]:
    """Yield each cell that a reader sees without unfolding anything."""
    in_solution = False
    for name, cell in notebooks(root):
        if name != chapter:
            continue
        in_solution |= "{solution-start}" in cell["source"]
        if SOLUTION_ENDS.match(cell["source"]):
            in_solution = False
            cell["source"] = SOLUTION_ENDS.sub("", cell["source"])
        if not (in_solution or FOLDED & {*cell["metadata"].get("tags", [])}):
            yield cell


def num_words(text: str) -> int:
    """Return the number of words in a text, without those that unfold."""
    open_text = SHOWN_LATER.sub("", DROPDOWN.sub("", text))
    read = sentences(Text("", 1, open_text))
    return sum(len(re.findall(WORD, sentence)) for _, sentence in read)


def bare_cells(root: Path) -> Iterator[Finding]:
    """Find cells of code that follow another without a sentence between.

    The check of an exercise may follow what it checks.
    """
    for name in chapters(root):
        before: set[str] | None = None  # the tags of a cell of code
        for cell in on_the_page(root, name):
            if cell["cell_type"] != "code":
                before = None
                continue
            if before is not None and not before & {"stub", "solution"}:
                location = f"{name}, cell {cell['id']}"
                yield Finding(
                    "bare cells", name, location, "no sentence before"
                )
            before = {*cell["metadata"].get("tags", [])}


def find_all(root: Path) -> list[Finding]:
    """Return all findings in a tree."""
    found = [*early_terms(root), *lonely_figures(root)]
    found += [*formatting_cells(root), *bare_cells(root)]
    for text in [*pages(root), *code(root)]:
        found += refused_words(text)
    return found


def main(root: Path = ROOT) -> str | None:
    """Print all findings; return what is wrong, if anything."""
    found = find_all(root)
    for finding in found:
        print(f"{finding.location}: {finding.kind}: {finding.what}")
    return f"to be mended: {len(found)}" if found else None


if __name__ == "__main__":
    sys.exit(main())
