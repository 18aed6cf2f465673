"""The check of exercises finds an editor that loses work, or a dead Python.

One test opens a page without a fault, another one with all of them.
"""

import json
import re
import shutil

import pack_python
import pytest

from tests.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

STATIC = ROOT / "book" / "_static"
STUB = "def sends_first(rank, p):\n    return False"
SOLUTION = "def sends_first(rank, p):\n    return rank % 2 == 0"
PAGE = f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A page</title>
<link rel="stylesheet" href="../_static/exercises.css">
<script src="../_static/kept.js"></script>
<script defer src="../_static/live/engine.js"></script>
<script defer src="../_static/exercises.js"></script>
<style>
*, ::before, ::after {{ box-sizing: border-box; }}
:root {{ --pst-font-family-monospace: monospace; --book-code-edge: #777;
--pst-font-family-base: serif;
--pst-color-text-base: #111; --pst-color-text-muted: #444;
--pst-color-surface: #eee; --pst-color-link: #038; }}
html[data-theme="dark"] {{ background: #111; color: #eee;
--pst-color-text-base: #eee; --pst-color-text-muted: #bbb;
--pst-color-surface: #222; --pst-color-link: #9cf; }}
</style>
</head>
<body><main><h1>A page</h1>
<div><pre>{STUB}</pre></div>
<div class="exercise-in-page" data-exercise="sends_first" hidden></div>
<div><pre>check(sends_first)</pre></div>
<div class="solution"><pre>{SOLUTION}</pre></div>
</main></body>
</html>
"""
NOTEBOOK = {
    "cells": [
        {"metadata": {"tags": ["stub"]}, "source": STUB},
        {"metadata": {"tags": ["solution"]}, "source": SOLUTION},
    ]
}

# What is planted: in which file, what in place of what.
FAULTS = [
    ("live/engine.js", "if (broken) {", "if (false) {"),
    ("live/engine.js", "bar.value = share;", ""),
    ("exercises.js", "else dpkitKept.set(keyBefore, area.value);", ""),
    ("exercises.js", 'addEventListener("storage", follow);', ""),
    (
        "exercises.js",
        'document.addEventListener("visibilitychange", follow);',
        "",
    ),
    ("exercises.js", "Stop: () => run.abort(),", "Stop() {},"),
    # The code, and not its numbers, has more room between lines.
    ("exercises.css", "  font: inherit;", "  line-height: 1.6;"),
    ("exercises.js", "(number > 1)", "0"),
    ("exercises.js", "`${line + 1}\\n`", "`${line}\\n`"),
]
SAID = [
    "“Start again” cannot be undone",
    'of two tabs one has "def sends_first',
    'of two tabs one has "def sends_first',
    "nothing says how much of Python is loaded",
    'lines are numbered "0\\n1\\n2\\n"',
    "the numbers of lines do not stand beside them",
    '“line 2” leads to "\\n',
    "a recursion without an end: Stopped: Maximum call stack size ",
    "after a recursion without an end: Stopped: Pyodide already ",
    "after a recursion without an end: a figure: Error: Pyodide ",
    "“Stop”: Python is at work",
]


@pytest.mark.parametrize(
    ("faults", "expected"), [([], []), (FAULTS, SAID)], ids=["none", "all"]
)
def test_what_is_planted_is_found_and_nothing_else(
    faults, expected, packed, check_pages, tmp_path
):
    site = tmp_path / "_build" / "html"
    (site / "book").mkdir(parents=True)
    (tmp_path / "book").mkdir()
    folder = site / "_static"
    shutil.copytree(STATIC, folder)
    pack_python.put_into_site(packed, site)
    for name, old, new in faults:
        path = folder / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")
    (site / "book" / "page.html").write_text(PAGE, "utf-8")
    notebook = tmp_path / "book" / "page.ipynb"
    notebook.write_text(json.dumps(NOTEBOOK), "utf-8")
    _, said = check_pages(tmp_path, "exercises")
    found = [
        match[1]
        for line in said
        if (match := re.match(r"\w+: book/page\.html.*?: (.*)", line))
    ]
    assert len(found) == len(expected), found
    for start, words in zip(expected, found, strict=True):
        assert words.startswith(start), (start, words)
