"""Give readers plain notebooks: with exercises, without solutions and MyST.

The download button of a page hands out its plain notebook. `make
notebooks-branch` puts all of them on a branch, for Colab and Binder. A plain
notebook needs nothing of the site to be read: see `plain_markdown.py`. A
figure has its caption in a line below. A live figure is its pictures at the
start, and a link to its page.

Not every viewer shows pictures that are SVG. `make book` adds PNG where it
finds a browser: see `scripts/pages/notebook_pictures.py`.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from live_figures import FIGURE, name_figure
from plain_markdown import InWords, plain_markdown
from repository_links import published_site
from roles_in_words import words_of
from sphinx.application import Sphinx

Cell = dict[str, Any]
Output = dict[str, Any]

START = "```{solution-start}"
END = "```{solution-end}\n```"
IN_PAGE = "*The solution stands in {{doc}}`the page of the chapter <{page}>`.*"
CONTROLS = "**{title}.** {{doc}}`On its page <{page}>` it has controls."
MOVES = "{{doc}}`On its page <{page}>` this picture moves."

# The parts of a live figure: dpbook/common/live.py.
PICTURES = re.compile(r'<div class="live-pictures">.*?</div>(?=<table)', re.S)
FACTS = re.compile(r'<table class="live-facts">.*?</p>', re.S)
# A link to a page that is no part of the book, as is "../print.html".
RELATIVE = re.compile(r'<a href="\.\./([^"]*)">(.*?)</a>', re.S)
# In the first cell: scripts/chapters/template/new-chapter.ipynb.
NEWEST = re.compile(r'(address, version = "[^"]*", )"HEAD"')
# The same while no address is set: nothing can be fetched from there.
NOWHERE = re.compile(
    r'# Where dpkit .*?    address, version = "https://unset\.invalid/.*', re.S
)
ADVICE = """\
from importlib.util import find_spec

if find_spec("dpkit") is None:
    raise ModuleNotFoundError(
        "this notebook needs dpkit and the book's records: in a clone of the "
        "book's repository type `make notebooks`, and open it there"
    )"""


def without_solutions(notebook: dict[str, Any], page: str) -> list[Cell]:
    """Return the cells of a notebook: stubs to fill in, and no solution.

    A cell of text may end one solution and begin the next exercise.
    """
    kept: list[Cell] = []
    solving, asked = False, False
    in_page = IN_PAGE.format(page=page)
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            asked |= "stub" in cell["metadata"].get("tags", [])
            if not solving:
                kept.append(unanswered(cell) if asked else cell)
            continue
        left = ""
        if solving and END in text:
            text, solving = text.split(END, 1)[1].lstrip(), False
        if START in text:
            left, solving = f"{text.split(START)[0]}{in_page}", True
        elif not solving:
            left = text
        if left:
            kept.append({**cell, "source": left.splitlines(keepends=True)})
    return kept


def unanswered(cell: Cell) -> Cell:
    """Return a cell without the outputs that an answer may have changed."""
    pictures = [o for o in cell["outputs"] if "<svg" in html_of(o)]
    return {**cell, "outputs": pictures}


def html_of(output: Output) -> str:
    """Return the HTML of an output, or ""."""
    return "".join(output.get("data", {}).get("text/html", ""))


def still(output: Output) -> list[Output]:
    """Return an output; of a live figure its pictures, and then its facts."""
    html = html_of(output)
    if not FIGURE.search(html):
        return [output]
    parts = (PICTURES.search(html), FACTS.search(html))
    words = output["data"]["text/plain"]
    return [
        {
            "data": {"text/html": part[0], "text/plain": words},
            "metadata": {},
            "output_type": "display_data",
        }
        for part in parts
        if part
    ]


def lines_below(
    cell: Cell, page: str, count: Counter[str], in_words: InWords
) -> Iterator[str]:
    """Yield what a page says of the figures of a cell, as Markdown.

    Args:
        cell: A cell of code.
        page: The name of its page, such as "overlap".
        count: How many live figures of each kind the page has so far.
        in_words: What takes the place of a role.
    """
    figure = cell["metadata"].get("mystnb", {}).get("figure", {})
    if "caption" in figure:
        number = in_words(f"{{numref}}`{figure['name']}`")
        caption = plain_markdown(figure["caption"], in_words)
        yield f"**{number}.** {caption}"
    for output in cell["outputs"]:
        html = html_of(output)
        if live := FIGURE.search(html):
            told = json.loads(live["told"])
            name = name_figure(told["name"], count)
            text = CONTROLS.format(title=told["title"], page=page)
            words = plain_markdown(text, in_words)
            yield words.replace(".html)", f".html#live-{name})")
        elif "data-step" in html:
            yield plain_markdown(MOVES.format(page=page), in_words)


def with_text(cell: Cell, text: str, site: str) -> list[Cell]:
    """Return a cell with another text, or no cell if the text is empty."""
    link = rf'<a href="{site}\1">\2</a>' if site else r"\2"
    source = RELATIVE.sub(link, text).strip("\n")
    if not source:
        return []
    return [{**cell, "source": source.splitlines(keepends=True)}]


def plain(
    notebook: dict[str, Any],
    page: str,
    in_words: InWords,
    site: str = "",
    revision: str = "HEAD",
) -> dict[str, Any]:
    """Return the plain notebook of a chapter.

    Args:
        notebook: The chapter, in the format of Jupyter.
        page: The name of its page, such as "overlap".
        in_words: What takes the place of a role.
        site: The address of the published site, which ends in "/", or "".
        revision: The commit or tag from which the first cell installs.
    """
    cells: list[Cell] = []
    count: Counter[str] = Counter()
    for cell in without_solutions(notebook, page):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cells += with_text(cell, plain_markdown(text, in_words), site)
            continue
        source = NOWHERE.sub(ADVICE, NEWEST.sub(rf'\1"{revision}"', text))
        cells.append(
            {
                **cell,
                "source": source.splitlines(keepends=True),
                "outputs": [o for all in cell["outputs"] for o in still(all)],
            }
        )
        below = "\n\n".join(lines_below(cell, page, count, in_words))
        name = f"{cell['id']}-below"
        new = {"cell_type": "markdown", "id": name, "metadata": {}}
        cells += with_text(new, below, site)
    return {**notebook, "cells": cells}


def revision_of(folder: Path) -> str:
    """Return the tag or the commit that a clone is at, or HEAD without git."""
    for command in (
        ("describe", "--tags", "--exact-match"),
        ("rev-parse", "HEAD"),
    ):
        try:
            done = subprocess.run(
                ["git", *command], cwd=folder, capture_output=True, text=True
            )
        except FileNotFoundError:
            break
        if done.returncode == 0:
            return done.stdout.strip()
    return "HEAD"


def write_plain_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Put the plain notebooks where the download buttons lead."""
    if exception is not None or app.builder.name != "html":
        return
    site = published_site(app.config)
    revision = revision_of(Path(app.srcdir))
    for name in sorted(app.env.found_docs):
        source = Path(app.srcdir, f"{name}.ipynb")
        target = Path(app.outdir, "_sources", f"{name}.ipynb")
        if target.exists():
            notebook = plain(
                json.loads(source.read_text("utf-8")),
                page=Path(name).name,
                in_words=words_of(app, name, site),
                site=site,
                revision=revision,
            )
            text = json.dumps(notebook, indent=1, ensure_ascii=False)
            target.write_text(f"{text}\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", write_plain_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
