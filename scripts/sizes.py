"""Print how long things are: modules, functions, chapters, cells, sentences.

Usage: sizes.py

These numbers judge nothing, and nothing fails by them. A long file, function
or chapter is worth a look: perhaps it holds two ideas. It does not get better
by being made denser.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prose import code, notebooks, pages, sentences
from words import ROOT, WORD, chapters, num_words, on_the_page

# From here on a thing is worth a look.
FILE, FUNCTION, CELL, SENTENCE = 300, 25, 12, 30


class Function(NamedTuple):
    """A function and its lines of code, without docstring and comments."""

    place: str
    lines: int


def num_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def lines_by_room(package: Path) -> Counter[str]:
    """Return for each part of the package how many lines it has."""
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        found[path.relative_to(package).parts[0]] += num_lines(path)
    return found


def functions(path: Path, root: Path) -> Iterator[Function]:
    """Yield the functions of a module."""
    source = path.read_text("utf-8")
    numbered = enumerate(source.splitlines(), start=1)
    code_lines = {i for i, x in numbered if x.strip() and x.strip()[0] != "#"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = code_lines & {*range(node.lineno, _end(node) + 1)}
            if ast.get_docstring(node):
                text = node.body[0]
                lines -= {*range(text.lineno, _end(text) + 1)}
            place = f"{path.relative_to(root)}:{node.lineno} {node.name}"
            yield Function(place, len(lines))


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def package_sizes(root: Path) -> Iterator[str]:
    """Yield what is long in the package, a line each."""
    package = root / "dpkit"
    rooms = lines_by_room(package)
    told = ", ".join(f"{name} {n}" for name, n in rooms.most_common(6))
    yield f"dpkit: {sum(rooms.values())} lines ({told}, …)"
    for path in sorted(package.rglob("*.py")):
        if num_lines(path) > FILE:
            yield f"  {path.relative_to(root)}: {num_lines(path)} lines"
        for function in functions(path, root):
            if function.lines > FUNCTION:
                yield f"  {function.place}: {function.lines} lines of code"


def chapter_sizes(root: Path) -> Iterator[str]:
    """Yield how long each chapter is, a line each."""
    for name in chapters(root):
        cells = [*on_the_page(root, name)]
        texts = [c["source"] for c in cells if c["cell_type"] == "markdown"]
        words = sum(map(num_words, texts))
        yield f"{name}: {words} words, {len(cells) - len(texts)} cells of code"
    for name, cell in notebooks(root):
        lines = [x for x in cell["source"].splitlines() if x.strip()]
        if cell["cell_type"] == "code" and len(lines) > CELL:
            yield f"  {name}, cell {cell['id']}: {len(lines)} lines"


def long_sentences(root: Path) -> Iterator[str]:
    """Yield the longest sentences of pages and code, a line each."""
    for text in [*pages(root), *code(root)]:
        for place, sentence in sentences(text):
            length = len(re.findall(WORD, sentence))
            if length > SENTENCE:
                yield f"  {place}: {length} words: {sentence[:50]}…"


def main(root: Path = ROOT) -> None:
    """Print all of it."""
    print(*package_sizes(root), sep="\n")
    print(*chapter_sizes(root), sep="\n")
    print(f"sentences of more than {SENTENCE} words:")
    print(*long_sentences(root), sep="\n")


if __name__ == "__main__":
    main()
