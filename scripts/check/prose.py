"""The prose of the project, and where each sentence of it stands.

The pages are the notebooks, ``book/*.md``, README.md, CONTRIBUTING.md, and the
README of tests, of scripts and of the archive of a term. In the code of
``dpkit/``, ``book/dpbook/`` and ``scripts/`` docstrings and comments are
prose.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

# What a Predict box says when a wrong item is chosen: "if 2: It would …".
SHOWN_LATER = re.compile(r"(?m)^if [\d.,e+-]+: (.*)$")
ROW = re.compile(r"(?m)^.*\S {2,}\S.*$")  # of a table, or of a drawing
MARKDOWN = MarkdownIt("commonmark").enable("table")
for plugin in (colon_fence_plugin, dollarmath_plugin, myst_role_plugin):
    MARKDOWN.use(plugin)


class Text(NamedTuple):
    """A cell with its id, or a text with the number of its first line."""

    file: str
    first: int | str
    content: str
    is_docstring: bool = False


def notebooks(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each cell of each notebook, with the notebook's file."""
    for path in sorted(root.glob("book/*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            cell["source"] = "".join(cell["source"])
            yield f"book/{path.name}", cell


def pages(root: Path) -> Iterator[Text]:
    """Yield the prose of all pages."""
    folders = (".", "book", "tests", "scripts", "scripts/owner/archive")
    for path in sorted(p for f in folders for p in (root / f).glob("*.md")):
        if path.name != "CHANGELOG.md":
            name = str(path.relative_to(root))
            yield Text(name, 1, path.read_text("utf-8"))
    for name, cell in notebooks(root):
        if cell["cell_type"] == "markdown":
            yield Text(name, cell["id"], cell["source"])


def code(root: Path) -> Iterator[Text]:
    """Yield the docstrings and comments of all modules."""
    for folder in ("dpkit", "book/dpbook", "scripts"):
        for path in sorted((root / folder).rglob("*.py")):
            if "node_modules" in path.parts:  # what others wrote
                continue
            name = str(path.relative_to(root))
            source = path.read_text("utf-8")
            yield from docstrings(source, name)
            yield from comments(source, name)


def docstrings(source: str, file: str) -> Iterator[Text]:
    """Yield the docstrings of a module; the lines of examples are empty."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node) or ""
            for example in re.findall(
                r"(?m)^ *>{3}.*\n?(?:^ *\S.*\n?)*", text
            ):
                text = text.replace(example, "\n" * example.count("\n"))
            text = re.sub(r"(?m)^(\w+):$", r"\1.", text)  # Args, Returns, …
            text = re.sub(r"(?m)^    (?=[\w*, ]+: )", "  - ", text)
            text = re.sub(r"(?m)^(?=``.* -- )", "- ", text)  # lists of modules
            text = ROW.sub("", text)
            if text:
                yield Text(file, node.body[0].lineno, text, True)


def comments(source: str, file: str) -> Iterator[Text]:
    """Yield the comments of a module that have a line to themselves."""
    for match in re.finditer(r"(?m)(?:^ *# .*\n)+", source):
        first = source.count("\n", 0, match.start()) + 1
        text = re.sub(r"(?m)^ *# ", "", match[0])
        yield Text(file, first, ROW.sub("", text))


def reading(token: Token) -> str:
    """Return what a reader reads; one word stands for code and formulas."""
    if token.type == "myst_role" and token.meta["name"] == "doc":
        if "<" not in token.content:  # the title of the page is shown
            return "Code"
    if token.type == "myst_role" and token.meta["name"] != "term":
        return re.sub(r"\s*<.*>|\s+", " ", token.content).strip()
    if token.type in ("code_inline", "math_inline", "myst_role"):
        return "Code"
    return "\n" if token.type == "softbreak" else token.content


def paragraphs(content: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and item, with the number of its first line."""
    before = ""
    for token in MARKDOWN.parse(content):
        line = token.map[0] if token.map else 0
        if token.type == "inline" and before == "paragraph_open":
            yield line, "".join(map(reading, token.children or []))
        elif token.type == "colon_fence" or "{exercise}" in token.info:
            for inner, text in paragraphs(token.content):
                yield line + 1 + inner, text
        before = token.type


def shown_later(content: str) -> Iterator[tuple[int, str]]:
    """Yield what a Predict box says of a wrong item, when it is chosen."""
    for match in SHOWN_LATER.finditer(content):
        line = content.count("\n", 0, match.start())
        yield from ((line, words) for _, words in paragraphs(match[1]))


def sentences(text: Text) -> Iterator[tuple[str, str]]:
    """Yield a sentence after its location: "file:line" or "file, cell id"."""
    content = text.content
    for first, paragraph in (*paragraphs(content), *shown_later(content)):
        sentence: list[str] = []
        start = first
        for line, part in enumerate(paragraph.split("\n"), first):
            for word in part.split():
                ended = sentence and re.search(r"[.!?]['\")*]*$", sentence[-1])
                if ended and not word[0].islower():
                    yield location(text, start), " ".join(sentence)
                    sentence = []
                start = start if sentence else line
                sentence.append(word)
        if sentence:
            yield location(text, start), " ".join(sentence)


def location(text: Text, line: int) -> str:
    """Return where a line of a text stands; lines are counted from 0."""
    if isinstance(text.first, str):
        return f"{text.file}, cell {text.first}"
    return f"{text.file}:{text.first + line}"
