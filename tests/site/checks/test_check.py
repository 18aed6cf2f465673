"""The checks of the pages find a fault, and say what is wrong and where.

They run on a small site with a page for each fault, planted there alone.
"""

import json
import random
import re
import subprocess
import sys

import pytest

from tests.repository import ROOT

CHECKS = ROOT / "scripts" / "check"

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A page</title>
<link rel="stylesheet" href="../style.css">
</head>
<body>
<main>
<h1 id="top">A page</h1>
<p>It leads to <a href="two.html#top">another</a>.</p>
<img src="../dot.svg" width="9" height="9" alt="A dot.">
</main>
</body>
</html>
"""
STYLE = """
html[data-theme="dark"] { background: #111; color: #eee; }
html[data-theme="dark"] a { color: #9cf; }
p { animation: arrive 60s; }
@keyframes arrive { from { opacity: 0.4; } }
"""
DOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">'
    '<circle cx="4" cy="4" r="4"/></svg>'
)
LETTERS = (
    '<article class="bd-article"><svg width="90" height="20" role="img" '
    'aria-label="Small"><text y="12" font-size="7">small</text></svg>'
    "</article>"
)
SMALL = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="20" '
    'viewBox="0 0 90 20"><text y="12" font-size="8">small</text></svg>'
)
WIDE = '<p style="width: 2000px">wide</p>'
OVER = '<p style="width: 400px; text-align: right">wide</p>'
CONTENTS = (
    '<button type="button" class="secondary-toggle" '
    'onclick="this.nextElementSibling.showModal()">Contents</button>'
    '<dialog aria-label="Contents"><a href="#top">A page</a></dialog>'
)
LATE = (
    "document.querySelector('h1').insertAdjacentHTML("
    "'beforebegin', '<p style=\"height: 400px\">late</p>')"
)

pytestmark = pytest.mark.slow


def build(root, pages):
    """Write a site of pages, by name, and a source for each."""
    site = root / "_build" / "html"
    (site / "book").mkdir(parents=True)
    (root / "book").mkdir()
    (site / "style.css").write_text(STYLE)
    (site / "dot.svg").write_text(DOT)
    (site / "small.svg").write_text(SMALL)
    (site / "idle.css").write_text(":root { --a: 0 } .nothing { color: red }")
    (site / "late.js").write_text(LATE)
    for name in ("togglebutton.js", "fontawesome.js"):
        (site / name).write_text("")
    for name, text in pages.items():
        (site / "book" / f"{name}.html").write_text(text)
        (root / "book" / f"{name}.md").write_text("# A page\n")
    return site


def test_a_site_without_a_fault_passes(check_pages, tmp_path):
    build(tmp_path, {"one": PAGE, "two": PAGE})
    status, said = check_pages(tmp_path)
    assert said[-2].startswith("2 pages, the heaviest book/")
    assert said[-1] == "nothing found"
    assert status == 0


HEAD, END = "</head>", "</main>"
FAULTS = {
    "a broken link": (
        ("two.html#top", "three.html"),
        "links: {place}.html [{place}.md]: leads nowhere: /book/three.html",
    ),
    "a broken fragment": (
        ("two.html#top", "two.html#bottom"),
        "links: {place}.html [{place}.md]: "
        "leads nowhere: /book/two.html#bottom",
    ),
    "an empty text for a picture": (
        ('alt="A dot."', 'alt=""'),
        "pictures: {place}.html [{place}.md]: "
        'a picture without a text: <img src="../dot.svg"',
    ),
    "a file name for a text": (
        ('alt="A dot."', 'alt="../dot.svg"'),
        "pictures: {place}.html [{place}.md]: "
        'a picture without a text: <img src="../dot.svg"',
    ),
    "no text for a picture": (
        (' alt="A dot."', ""),
        "axe: {place}.html (light; dark; phone) [{place}.md]: img: "
        "Images must have alternative text [image-alt]",
    ),
    "a colour that is pale in the dark": (
        ("<p>", '<p style="color: #222">'),
        "axe: {place}.html (dark) [{place}.md]: p: Elements must meet "
        "minimum color contrast ratio thresholds [color-contrast]",
    ),
    "an external script": (
        (HEAD, '<script src="https://example.org/a.js"></script></head>'),
        "requests: {place}.html [{place}.md]: "
        "asks another server: https://example.org/a.js",
    ),
    "a request of a script": (
        (END, "</main><script>fetch('//example.org/b')</script>"),
        "requests: {place}.html [{place}.md]: "
        "asks another server: http://example.org/b",
    ),
    "a name of another server that is not yet asked": (
        (END, '<img loading="lazy" src="//example.org/c.png" alt="C"></main>'),
        "requests: {place}.html [{place}.md]: "
        "names another server: //example.org/c.png",
    ),
    "a script that fails": (
        (END, "</main><script>throw Error('no such box')</script>"),
        "requests: {place}.html [{place}.md]: "
        "a script fails: no such box at http",
    ),
    "a page that is too heavy": (
        (END, f"<!-- {'much ' * 200_000}--></main>"),
        "weight: {place}.html [{place}.md]: 1000",
    ),
    "a style for nothing": (
        (HEAD, '<link rel="stylesheet" href="../idle.css"></head>'),
        "weight: {place}.html [{place}.md]: nothing on it uses idle.css",
    ),
    "a script for nothing": (
        (HEAD, '<script src="../togglebutton.js"></script></head>'),
        "weight: {place}.html [{place}.md]: "
        "nothing on it uses togglebutton.js",
    ),
    "the script of icons": (
        (HEAD, '<script src="../fontawesome.js"></script></head>'),
        "weight: {place}.html [{place}.md]: nothing on it uses fontawesome.js",
    ),
    "a part that comes late": (
        (HEAD, '<script defer src="../late.js"></script></head>'),
        "loading: {place}.html [{place}.md]: its parts jump by 0.",
    ),
    "small letters in a drawing": (
        (END, f"{LETTERS}</main>"),
        "phone: {place}.html [{place}.md]: "
        "letters of 7.0 pixels, fewer than 11, in: Small",
    ),
    "small letters in an image": (
        (END, '<img src="../small.svg" alt="Small"></main>'),
        "phone: {place}.html [{place}.md]: "
        "letters of 8.0 pixels, fewer than 11, in: Small",
    ),
    "a table that goes on unseen": (
        (END, f'<div style="overflow: auto">{WIDE}</div></main>'),
        "phone: {place}.html [{place}.md]: "
        "nothing shows that this scrolls: div.",
    ),
    "contents that lie over what they lead to": (
        (END, f"{CONTENTS}</main>"),
        "phone: {place}.html [{place}.md]: "
        "the contents lie over what they lead to",
    ),
    "words that reach over the edge of a phone": (
        (END, f"{OVER}</main>"),
        "phone: {place}.html [{place}.md]: "
        "408 pixels wide, on a screen of 360, because of: p: wide",
    ),
    "invalid html": (
        ("<p>", "<p><div>a block in a line</div>"),
        "html: {place}.html:12 [{place}.md]: Stray end tag '</p>'",
    ),
    "an id given twice": (
        ("<p>", '<p id="top">'),
        "html: {place}.html:12 (html > body > main > p) [{place}.md]: "
        'Duplicate ID "top"',
    ),
}


def faulty(number):
    """Return the page in which one of the faults is planted."""
    old, new = list(FAULTS.values())[number][0]
    assert PAGE.count(old) == 1
    return PAGE.replace(old, new)


@pytest.fixture(scope="module")
def findings(check_pages, tmp_path_factory):
    """Check a site with one fault a page; return what is said of it."""
    root = tmp_path_factory.mktemp("faulty")
    pages = {f"page-{i}": faulty(i) for i in range(len(FAULTS))}
    site = build(root, {"one": PAGE, "two": PAGE} | pages)
    with (site / "style.css").open("a") as sheet:
        sheet.write("@font-face { src: url(https://x.org/a.woff) }")
    status, said = check_pages(root)
    assert status == 1
    found = [line for line in said if re.match(r"\w+: \S+\.(html|css)", line)]
    assert said[-1] == f"found in all: {len(found)}"
    return found


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=list(FAULTS))
def test_the_fault_of_a_page_is_found(findings, number):
    expected = list(FAULTS.values())[number][1]
    about = [line for line in findings if f"page-{number}.html" in line]
    place = f"book/page-{number}"
    expected = expected.format(place=place)
    assert any(line.startswith(expected) for line in about), about


def test_a_page_without_a_fault_is_not_named(findings):
    about = [line for line in findings if re.search("book/(one|two)", line)]
    assert all("leads nowhere" in line for line in about)


def said_by(source):
    """Run a module of node; return what it prints."""
    return subprocess.run(
        ["node", "--input-type=module", "-e", source],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_all_pages_are_opened_but_of_those_of_source_each_seventh():
    source = f"""
        import {{ opened }} from "{CHECKS.as_uri()}/site.mjs";
        const sources = [..."abcdefghijklmno"].map((c) => `_modules/${{c}}`);
        const pages = ["404.html", ...sources, "book/a.html", "book/b.html"];
        console.log(opened(pages).join(" "));
    """
    assert said_by(source) == (
        "404.html _modules/a _modules/h _modules/o book/a.html book/b.html\n"
    )


def test_who_comes_to_a_figure_and_sees_parts_jump_is_told():
    # When a browser draws a small page is chance; so the rows are given.
    source = f"""
        import {{ judge }} from "{CHECKS.as_uri()}/loading.mjs";
        const row = {{ page: "a.html", idle: [], desk: 0, phone: 0,
          landed: [["phone", "x", 0.9], ["desk", "y", 0.1]],
          files: new Map() }};
        for (const {{ what }} of judge([row])) console.log(what);
    """
    assert said_by(source) == (
        "who comes to #x sees parts jump by 0.900 (phone), more than 0.4\n"
    )


# While its lines are read, a page asks for nothing.
SLOWLY_READ = (
    "<p>slow</p>"
    "<script>for (const end = Date.now() + 300; Date.now() < end;);</script>\n"
) * 9


def test_a_page_that_is_read_slowly_is_judged_when_it_is_loaded(tmp_path):
    script = '<script defer src="../togglebutton.js"></script></head>'
    page = PAGE.replace(HEAD, script).replace(END, f"{SLOWLY_READ}{END}")
    site = build(tmp_path, {"one": page})
    (site / "togglebutton.js").write_text(
        "document.querySelector('p').className = 'toggle'"
    )
    source = f"""
        import {{ judge, loadings }} from "{CHECKS.as_uri()}/loading.mjs";
        import {{ serve }} from "{CHECKS.as_uri()}/server.mjs";
        const site = "{site}";
        const {{ origin, server }} = await serve(site);
        const rows = await loadings(site, origin, ["book/one.html"]);
        for (const {{ what }} of judge(rows)) console.log(what);
        server.close();
        server.closeAllConnections();
    """
    assert "nothing on it uses" not in said_by(source)


def test_a_style_sheet_that_asks_another_server_is_found(findings):
    address = "https://x.org/a.woff"
    assert f"requests: style.css: names another server: {address}" in findings


def test_a_misspelt_word_is_found_where_it_stands(check_pages, tmp_path):
    build(tmp_path, {"one": PAGE, "two": PAGE})
    (tmp_path / "book" / "one.md").write_text(
        "# one\n\nThe `wrng` colour, wrod.\n\n"
        "```\nwrng\n```\n\n```{exercise}\nSum theese\n```\n"
    )
    cell = {
        "cell_type": "markdown",
        "id": "page-001",
        "metadata": {},
        "source": ["A sum\n", "of gradeints\n"],
    }
    figure = {
        "cell_type": "code",
        "id": "page-002",
        "metadata": {
            "mystnb": {"figure": {"caption": "A picure."}, "image": {}}
        },
        "source": ["notaword = 1"],
    }
    (tmp_path / "book" / "two.md").unlink()
    (tmp_path / "book" / "two.ipynb").write_text(
        json.dumps({"cells": [cell, figure]})
    )
    (tmp_path / "dpkit").mkdir()
    (tmp_path / "dpkit" / "sums.py").write_text(
        '"""Add.\n\nWith behavior."""\n'
    )
    status, said = check_pages(tmp_path, "spelling")
    found = [line for line in said if line.startswith("spelling")]
    assert found[:-1] == [
        "spelling: book/one.md:3: unknown: wrod",
        "spelling: book/one.md:10: unknown: theese",
        "spelling: book/two.ipynb, cell page-001, line 2: unknown: gradeints",
        "spelling: book/two.ipynb, cell page-002 (caption): unknown: picure",
        "spelling: dpkit/sums.py:3: unknown: behavior",
    ]
    assert status == 1


def test_a_search_that_is_lost_is_found(check_pages, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH_PATIENCE", "1000")
    site = build(tmp_path, {"one": PAGE, "two": PAGE})
    alone = PAGE.replace("two.html#top", "search.html").replace("../", "")
    (site / "search.html").write_text(alone)
    status, said = check_pages(tmp_path, "looks")
    found = [line for line in said if line.startswith("search")]
    assert sorted(found) == [
        "search: book/one.html [book/one.md]: has no field to search in",
        "search: book/two.html [book/two.md]: has no field to search in",
        "search: search.html: finds nothing for: device",
    ]
    assert status == 1


def test_what_every_page_shares_is_printed_and_held(check_pages, tmp_path):
    heavy = random.Random(0).randbytes(60_000).hex()  # no gzip halves it more
    page = PAGE.replace(HEAD, '<script src="../heavy.js"></script></head>')
    site = build(tmp_path, {"one": page, "two": page})
    (site / "heavy.js").write_text(f'"{heavy}{heavy[::-1]}"')
    status, said = check_pages(tmp_path, "loading")
    (words,) = [line for line in said if line.startswith("every page")]
    files, num_bytes = map(int, re.findall(r"\d+", words))
    assert files == 3
    assert num_bytes > 120_000
    assert f"weight: every page: {num_bytes} bytes sent, more than" in "".join(
        said
    )
    assert status == 1


def test_a_map_of_a_script_is_found(check_pages, tmp_path):
    site = build(tmp_path, {"one": PAGE, "two": PAGE})
    (site / "late.js.map").write_text("{}")
    status, said = check_pages(tmp_path, "weight")
    assert "weight: late.js.map: a map, which no page uses" in said
    assert status == 1


RESULTS = """
<ul id="search-results"><li><a href="book/two.html">Two</a></li>
<li><a href="book/one.html">One</a></li>
<li><a href="book/sharding.html">Sharding</a></li></ul>
"""


def test_a_search_that_leads_to_a_wrong_page_is_found(check_pages, tmp_path):
    names = ("one", "two", "sharding")
    site = build(tmp_path, dict.fromkeys(names, PAGE))
    alone = PAGE.replace("two.html#top", "search.html").replace("../", "")
    (site / "search.html").write_text(alone.replace(END, f"{RESULTS}{END}"))
    status, said = check_pages(tmp_path, "looks")
    assert (
        "search: search.html: for “FSDP” it finds two, one first, not sharding"
    ) in said
    assert not any("bucket size" in line for line in said)  # no such page
    assert status == 1


def test_a_sign_on_the_words_of_the_search_is_found(check_pages, tmp_path):
    site = build(tmp_path, {"one": PAGE, "two": PAGE})
    sign = '<i style="position: absolute; left: 9px">o</i>'
    field = '<input type="search" aria-label="Search">'
    form = f'<form class="bd-search">{sign}{field}</form>'
    alone = PAGE.replace("two.html#top", "search.html").replace("../", "")
    page = alone.replace(END, f"{form}{RESULTS}{END}")
    (site / "search.html").write_text(page)
    status, said = check_pages(tmp_path, "looks")
    found = "search: search.html: a sign lies on the words of the field"
    assert found in said
    assert status == 1


def test_a_check_that_is_not_there_is_named(check_pages, tmp_path):
    build(tmp_path, {"one": PAGE, "two": PAGE})
    run = subprocess.run(
        ["node", CHECKS / "main.mjs", tmp_path, sys.executable, "speling"],
        capture_output=True,
        text=True,
    )
    assert "no such check (named: speling, known: weight," in run.stderr
    assert run.returncode == 2


def test_a_site_that_is_not_built_is_named(check_pages, tmp_path):
    run = subprocess.run(
        ["node", CHECKS / "main.mjs", tmp_path], capture_output=True, text=True
    )
    assert f"no site is built (folder: {tmp_path}/_build/html)" in run.stderr
    assert run.returncode == 2
