"""Plain notebooks: what a reader sees of them outside of the site.

nbconvert renders them as any viewer does that knows no MyST.
"""

import json
import re

import nbformat
import notebook_pictures
import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from plain_markdown import MYST, plain_markdown
from plain_notebooks import plain

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
ROLE = re.compile(r"\{[\w:+-]+\}$")
MARKS = re.compile(r"^(:::|:\w+: |\([\w-]+\)=)|\$\$ *\([\w-]+\)", re.M)


def joined(notebook):
    """Return a notebook as nbformat reads it: with each text in one piece."""
    return nbformat.reads(json.dumps(notebook), as_version=4)


def raw_myst(notebook):
    """Return what a viewer without MyST shows of roles and directives."""
    found = []
    html, _ = HTMLExporter().from_notebook_node(joined(notebook))
    for cell in BeautifulSoup(html, "html.parser").select(
        ".jp-RenderedMarkdown"
    ):
        for code in cell.find_all("code"):
            before = code.previous_sibling
            if isinstance(before, str) and (role := ROLE.search(before)):
                found.append(f"{role[0]}`{code.get_text()}`")
        for code in cell.find_all(["pre", "code"]):
            code.clear()
        found += [mark[0] for mark in MARKS.finditer(cell.get_text())]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            source = "".join(cell["source"])
            found += re.findall(r"<!-- predict|\{solution-\w+\}", source)
            for token in MYST.parse(source):
                if token.type == "fence" and token.info.startswith("{"):
                    found.append(token.info)
                if token.type == "dl_open":  # GitHub knows no such list
                    found.append(token.type)
    return found


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_no_role_or_directive_is_visible(site, path):
    given = read(site / "_sources" / "book" / path.name)
    nbformat.validate(joined(given))
    assert raw_myst(given) == []
    assert len(raw_myst(read(path))) > 5  # and it would be found


def test_what_viewers_show_raw_is_found():
    text = (
        "(here)=\n# A\n\nSee {doc}`overlap`.\n\n:::{admonition} B\n"
        ":class: bug\nC\n:::\n\n```{exercise} D\n:label: ex\n```\n\n"
        "$$x$$ (eq-x)\n\nTerm\n: E"
    )
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": text}
    notebook = {
        "cells": [cell],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    assert raw_myst(notebook) == [
        *("{doc}`overlap`", "(here)=", ":::", ":class: ", ":::"),
        *("$$ (eq-x)", "{exercise} D", "dl_open"),
    ]


def in_words(role):
    """Return what stands for a role, as words that show which it was."""
    name, _, what = role.rstrip("`").partition("`")
    return "[(3.1)](x)" if name == "{eq}" else f"[{what}](x)"


@pytest.mark.parametrize(
    ("myst", "markdown"),
    [
        ("as {doc}`a` and {ref}`b <c>`.", "as [a](x) and [b <c>](x)."),
        ("| {doc}`a` | `{doc}` |", "| [a](x) | `{doc}` |"),
        ("- one {term}`of\n  two`", "- one [of two](x)"),
        (":::{admonition} Bug `a`\n:class: bug\n\n{doc}`b`\n:::",
         "> **Bug `a`**\n>\n> [b](x)"),
        (":::{admonition} More `a`\n:class: hint dropdown\nb\n:::\n\nc",
         "> <details>\n> <summary><strong>More <code>a</code></strong>"
         "</summary>\n>\n> b\n>\n> </details>\n\nc"),
        ("```{exercise} Add\n:label: ex-a\n\nb\n```",
         "> **[ex-a](x): Add**\n>\n> b"),
        ("::::{grid} 1 2\n:gutter: 2\n\n:::{grid-item-card} A\nb\n:::\n\n"
         ":::{grid-item-card}\nc\n:::\n::::", "> **A**\n>\n> b\n\n> c"),
        ("(here)=\n## A", "## A"),
        ("$$\nx\n$$ (eq-a)", "$$\nx\n\\tag{3.1}\n$$"),
        (":::{admonition} Predict\n:class: prediction\na?\n<!-- predict\n"
         "choice: b | 1 | c\n-->\n:::", "> **Predict**\n>\n> a?"),
        ("```python\n# {doc}`a`\n```", "```python\n# {doc}`a`\n```"),
        ("a\\\n*b*  \n\n    :::{c}", "a\\\n*b*  \n\n    :::{c}"),
    ],
)  # fmt: skip
def test_each_block_of_myst_becomes_markdown(myst, markdown):
    assert plain_markdown(myst, in_words) == markdown


LIVE = (
    '<figure class="live" aria-label="A"><div class="live-pictures">'
    '<svg aria-label="b"><path/></svg></div><table class="live-facts"><tbody>'
    '<tr><td>c</td></tr></tbody></table><p class="live-sentence">d</p><script '
    'type="application/json">{"name": "kind", "title": "A"}</script></figure>'
)


def code(name, source="", metadata=None, **data):
    shown = {"data": data, "metadata": {}, "output_type": "display_data"}
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": metadata or {},
        "outputs": [shown] if data else [],
        "source": source,
    }


def live(name):
    return code(name, **{"text/html": LIVE, "text/plain": "<live>"})


def given(*cells, words=in_words, **options):
    """Return the cells of a plain notebook, and what those of text say."""
    found = plain({"cells": list(cells)}, "page", words, **options)["cells"]
    texts = [
        "".join(c["source"]) for c in found if c["cell_type"] == "markdown"
    ]
    return found, texts


def test_a_caption_is_a_line_below_its_figure():
    figure = {"name": "fig-a", "caption": "As {doc}`b` shows."}
    cell = code("a", metadata={"mystnb": {"figure": figure}})
    cells, texts = given(cell)
    assert [c["id"] for c in cells] == ["a", "a-below"]
    assert texts == ["**[fig-a](x).** As [b](x) shows."]


def test_a_live_figure_is_its_picture_and_a_link():
    def linked(role):
        return "[On its page](https://a.b/page.html)"

    cells, texts = given(live("a"), live("b"), words=linked)
    start = "**A.** [On its page](https://a.b/page.html#live-kind"
    assert texts == [
        f"{start}) it has controls.",
        f"{start}-2) it has controls.",
    ]
    pictures, facts = (o["data"]["text/html"] for o in cells[0]["outputs"])
    assert "<svg" in pictures
    assert "script" not in pictures + facts
    assert facts.startswith("<table")
    assert facts.endswith("d</p>")


def test_what_an_answer_may_change_is_not_shown():
    """A live figure does not depend on it, and stays."""
    stub = code("a", metadata={"tags": ["stub"]}, **{"text/plain": "1"})
    after = code("b", **{"image/svg+xml": "<svg/>"})
    cells, _ = given(stub, after, live("c"))
    shown = {c["id"]: len(c.get("outputs", [])) for c in cells}
    assert shown == {"a": 0, "b": 0, "c": 2, "c-below": 0}


@pytest.mark.parametrize(
    ("site", "text"),
    [
        ("", "It is on one page."),
        ("https://a.b/c/",
         'It is on <a href="https://a.b/c/print.html">one page</a>.'),
    ],
)  # fmt: skip
def test_a_link_to_the_page_to_print_leads_to_the_site_or_nowhere(site, text):
    source = 'It is on <a href="../print.html">one page</a>.'
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}}
    assert given({**cell, "source": source}, site=site)[1] == [text]


def drawing(monkeypatch, tmp_path, cells):
    """Put pictures into a notebook of a site; return its outputs."""
    monkeypatch.setattr(notebook_pictures, "DRAWN", tmp_path / "drawn")
    path = tmp_path / "site/_sources/book/a.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    notebook_pictures.put_pictures(tmp_path / "site")
    return [o for cell in read(path)["cells"] for o in cell["outputs"]]


SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20" '
    'aria-label="a line"><path d="M5 5h50" stroke="red"/></svg>'
)


def test_without_a_browser_no_html_stands_for_a_picture(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("PATH", str(tmp_path))
    table = {"text/html": "<table></table>", "text/plain": "d"}
    outputs = drawing(
        monkeypatch,
        tmp_path,
        [
            code("a", **{"image/svg+xml": SVG}),
            code("b", **{"text/html": f"<div>{SVG}</div>", "text/plain": "c"}),
            code("c", **table),
        ],
    )
    shown = [{"image/svg+xml": SVG}, {"text/plain": "c"}, table]
    assert [o["data"] for o in outputs] == shown
    assert "plain notebooks go without PNG (" in capsys.readouterr().out
