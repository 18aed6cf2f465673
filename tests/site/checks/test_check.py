"""The checks of the pages find a fault, and say what is wrong and where.

They run on small sites: of a page without a fault, and for each check of one
in which all is planted that it is to see.
"""

import json
import random
import re
import subprocess
import sys

import pytest

from tests.site.checks.conftest import CHECKS

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
CALCULATOR = (
    '<div id="live-calculator"><p class="live-control">GPUs</p>'
    '<p class="live-sentence">It fits.</p></div>'
)
CONTENTS = (
    '<button type="button" class="secondary-toggle" '
    'onclick="this.nextElementSibling.showModal()">Contents</button>'
    '<dialog aria-label="Contents"><a href="#top">A page</a></dialog>'
)
LATE = (
    "document.querySelector('h1').insertAdjacentHTML("
    "'beforebegin', '<p style=\"height: 400px\">late</p>')"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


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
# By check: in place of what something is planted, what, and what is said then:
# of which kind, where on the page, and in which words.
FAULTS = {
    "links": [
        ("two.html#top", "three.html",
         "links", "", "leads nowhere: /book/three.html"),
        (END, '<a href="two.html#bottom">it</a>',
         "links", "", "leads nowhere: /book/two.html#bottom"),
    ],
    "weight": [
        (END, f"<!-- {'much ' * 200_000}-->", "weight", "", "1000"),
    ],
    "html": [
        ("<p>", '<p id="top"><div>a block in a line</div>',
         "html", ":12", "Stray end tag '</p>'"),
        (END, "",
         "html", ":12 (html > body > main > p)", 'Duplicate ID "top"'),
    ],
    "loading": [
        (HEAD, '<link rel="stylesheet" href="../idle.css">',
         "weight", "", "nothing on it uses idle.css"),
        (HEAD, '<script src="../togglebutton.js"></script>',
         "weight", "", "nothing on it uses togglebutton.js"),
        (HEAD, '<script src="../fontawesome.js"></script>',
         "weight", "", "nothing on it uses fontawesome.js"),
        (HEAD, '<script defer src="../late.js"></script>',
         "loading", "", "its parts jump by 0."),
        (HEAD, "", "loading", "", "its parts jump by 0."),  # on a phone, too
    ],
    "looks": [
        ('alt="A dot."', 'alt="" id="empty"',
         "pictures", "", 'a picture without a text: <img src="../dot.svg" '
         'width="9" height="9" alt="" id="empty">'),
        (END, '<img src="../dot.svg" alt="../dot.svg">',
         "pictures", "", 'a picture without a text: <img src="../dot.svg" '
         'alt="../dot.svg">'),
        (END, '<img src="../dot.svg" id="silent">',
         "pictures", "", 'a picture without a text: <img src="../dot.svg" '
         'id="silent">'),
        (END, "",
         "axe", " (light; dark; phone)",
         "#silent: Images must have alternative text [image-alt]"),
        (END, '<p id="pale" style="color: #222">Pale.</p>',
         "axe", " (dark)", "#pale: Elements must meet minimum color contrast "
         "ratio thresholds [color-contrast]"),
        (HEAD, '<script src="https://example.org/a.js"></script>',
         "requests", "", "asks another server: https://example.org/a.js"),
        (HEAD, "",
         "requests", "", "names another server: https://example.org/a.js"),
        (END, "<script>fetch('//example.org/b').catch(String)</script>",
         "requests", "", "asks another server: http://example.org/b"),
        (END, '<img hidden loading="lazy" src="//example.org/c.png" alt="C">',
         "requests", "", "names another server: //example.org/c.png"),
        (END, "<script>throw Error('no such box')</script>",
         "requests", "", "a script fails: no such box at http"),
        (END, LETTERS,
         "phone", "", "letters of 7.0 pixels, fewer than 11, in: Small"),
        (END, '<img src="../small.svg" alt="An image">',
         "phone", "", "letters of 8.0 pixels, fewer than 11, in: An image"),
        (END, f'<div style="overflow: auto">{WIDE}</div>',
         "phone", "", "nothing shows that this scrolls: div."),
        (END, CALCULATOR,
         "phone", "", "the verdict stands below the controls"),
        (END, CONTENTS,
         "phone", "", "the contents lie over what they lead to"),
        (END, OVER,
         "phone", "",
         "408 pixels wide, on a screen of 360, because of: p: wide"),
        (END, "", "phone", "",
         "408 pixels wide, on a screen of 390, because of: p: wide"),
    ],
}  # fmt: skip


def planted(check):
    """Return the page with all that a check is to see."""
    page = PAGE
    for old, new, *_ in FAULTS[check]:
        assert page.count(old) == 1
        page = page.replace(old, new + old * (old in (HEAD, END)))
    return page


@pytest.mark.parametrize("check", FAULTS)
def test_what_is_planted_is_found_and_nothing_else(
    check, check_pages, tmp_path
):
    build(tmp_path, {"page": planted(check), "two": PAGE})
    status, said = check_pages(tmp_path, check)
    assert status == 1
    found = [line for line in said if re.match(r"\w+: \S+\.html", line)]
    expected = [
        f"{kind}: book/page.html{where} [book/page.md]: {words}"
        for _, _, kind, where, words in FAULTS[check]
    ]
    for start in expected:
        assert any(line.startswith(start) for line in found), (start, found)
    other = [line for line in found if not line.startswith(tuple(expected))]
    assert other == []
    assert len(found) == len(expected), found


def test_a_drawing_that_is_missing_does_not_end_the_looks(
    check_pages, tmp_path
):
    page = PAGE.replace(END, f'<img src="../gone.svg" alt="Gone">{END}')
    build(tmp_path, {"one": page, "two": PAGE})
    status, said = check_pages(tmp_path, "links", "looks")
    assert status == 1
    assert (
        "links: book/one.html [book/one.md]: leads nowhere: /gone.svg" in said
    )
    assert any(line.startswith("looks: ") for line in said)


def test_who_comes_to_a_figure_and_sees_parts_jump_is_told(said_by):
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


def test_a_page_that_is_read_slowly_is_judged_when_it_is_loaded(
    said_by, tmp_path
):
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


def test_a_style_sheet_that_asks_another_server_is_found(
    check_pages, tmp_path
):
    site = build(tmp_path, {"one": PAGE, "two": PAGE})
    with (site / "style.css").open("a") as sheet:
        sheet.write("@font-face { src: url(https://x.org/a.woff) }")
    status, said = check_pages(tmp_path, "styles")
    address = "https://x.org/a.woff"
    assert f"requests: style.css: names another server: {address}" in said
    assert status == 1


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


def test_a_search_that_is_lost_is_found(check_pages, tmp_path):
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
