"""`make check` finds a Predict box that does not do what it is for."""

import json
import re
from html import escape

import predict
import pytest

from tests.repository import ROOT

STATIC = ROOT / "book" / "_static"
ASKED = escape(json.dumps([["a product", "ms", "27.2"]]))
WHO = escape(json.dumps([["who waits", None, "2"]]))
OPTIONS = "".join(
    f"<li>{predict.CHOICE.format(cell='NAME-who', number=number)}{words}"
    "</span></label></li>"
    for number, words in enumerate(("Python", "the device", "nobody"), 1)
)
IFS = "".join(
    f"{predict.IF.format(number=number)}<p>{sentence}</p></div>"
    for number, sentence in ((1, "If it is busy."), (3, "If all is done."))
)
PAGE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A page</title>
<link rel="stylesheet" href="../NAME.css">
<script src="../NAME.js"></script>
</head>
<body>
<main>
<h1>A page</h1>
<form class="predict" id="predict-NAME" name="NAME" data-asked="{ASKED}">
{predict.FIELD.format(label="a product", unit="ms")}{predict.END}
<p>It goes on.</p>
{predict.NOTE.format(cell="NAME")}
<div class="predict-fold" data-box="NAME"><p id="told">27.2 ms</p></div>
<form class="predict" id="predict-NAME-who" name="NAME-who"
 data-asked="{WHO}">
<fieldset>
<legend>who waits</legend>
<ol>
{OPTIONS}
</ol>
</fieldset>
{IFS}
{predict.END}
<div class="predict-fold" data-box="NAME-who"><p>The device waits.</p></div>
{predict.FOUND}
</main>
</body>
</html>
"""
COLOURS = """
:root { --book-prediction: #306; --book-prediction-bg: #eef;
        --pst-color-background: #fff; }
html[data-theme="dark"] { background: #111; color: #eee;
  --book-prediction: #cbf; --book-prediction-bg: #334;
  --pst-color-background: #111; }
html[data-theme="dark"] a { color: #9cf; }
"""
# What is planted: in which file, what in place of what, and what is said.
FAULTS = {
    "unfolded": (
        "js",
        "forms().forEach(foldIn);\n    forms().forEach(prepare)",
        "forms().forEach(prepare)",
        "unfolded is not folded",
    ),
    "kept": (
        "js",
        'fold.removeAttribute("hidden"));\n  };',
        "fold);\n  };",
        "kept stays folded after a guess",
    ),
    "silent": (
        "js",
        '"; it is ", found',
        '"; it is ", "another"',
        "silent does not tell its answer",
    ),
    "numbered": (  # says which option is right, and not what it says
        "js",
        "option(form, found),",
        "found,",
        "numbered-who does not tell its answer",
    ),
    "another": (  # says why another option is wrong
        "js",
        '[data-if="${kept(form.name).at(-1)}"]',
        "[data-if]",
        "another-who does not say what would make a wrong option right",
    ),
    "once": (
        "js",
        "forget(form.name);",
        "",
        "once-who does not ask again",
    ),
    "apart": (
        "js",
        'addEventListener("storage", follows);',
        "",
        "apart differs in another tab",
    ),
    "deaf": (
        "js",
        "function follow() {",
        "function follow() { all('[hidden]').forEach((fold) =>"
        " { fold.hidden = true; }); return;",
        "a link does not unfold #told",
    ),
    "paper": (
        "css",
        "content-visibility: visible !important",
        "color: inherit",
        "paper is folded on paper",
    ),
    "bare": (  # and the lightest, which is opened without a script
        "html",
        'data-box="bare"><p id="told">27.2 ms</p>',
        "hidden><p>27.2 ms</p>",
        "is folded without a script",
    ),
    "low": ("css", "min-height: 44px", "height: 20px", "lower than 44 pixels"),
}
# What is looked for on one page alone: it stands alone in its site.
RARE_FAULTS = {
    "unsent": (
        "js",
        "form.oninput =",
        "form.oldinput =",
        "unsent forgets a guess that is not sent",
    ),
    "stubborn": (
        "js",
        "dpkitKept.forget(DRAFT + box);",
        "",
        "stubborn keeps a guess that was taken back",
    ),
    "unasked": (
        "js",
        "if (!confirm(",
        "if (false && !confirm(",
        "unasked is forgotten unasked",
    ),
    "overwritten": (  # keeps what there was when the page was opened
        "js",
        "storage = localStorage;",
        "storage = new Proxy(localStorage, {"
        " own: Object.keys(localStorage), set(all, key, text) {"
        " this.own.push(key); all[key] = text;"
        " Object.keys(all).filter((name) => !this.own.includes(name))"
        ".forEach((name) => delete all[name]); return true; } });",
        "overwritten is forgotten when another tab answers",
    ),
}

pytestmark = pytest.mark.slow


def planted(name):
    """Return the files of a page, by ending, with a fault."""
    files = {
        "html": PAGE.replace("NAME", name),
        "js": "".join(
            (STATIC / script).read_text("utf-8")
            for script in ("kept.js", "predict.js")
        ),
        "css": COLOURS + (STATIC / "predict.css").read_text("utf-8"),
    }
    faults = FAULTS | RARE_FAULTS
    if name in faults:
        ending, old, new, _ = faults[name]
        assert old in files[ending]
        files[ending] = files[ending].replace(old, new)
    return files


def check(check_pages, root, names):
    """Check a site of pages; return what is found."""
    site = root / "_build" / "html"
    (site / "book").mkdir(parents=True)
    (root / "book").mkdir()
    for name in names:
        files = planted(name)
        (site / "book" / f"{name}.html").write_text(files["html"])
        (site / f"{name}.js").write_text(files["js"])
        (site / f"{name}.css").write_text(files["css"])
    _, said = check_pages(root, "looks", "unscripted")
    return [line for line in said if re.match(r"[\w ]+: \S+\.html", line)]


@pytest.fixture(scope="module")
def findings(check_pages, tmp_path_factory):
    """Check a site with a fault on each page, and a page without one."""
    root = tmp_path_factory.mktemp("asking")
    return check(check_pages, root, ["good", *FAULTS])


def test_a_good_box_passes(findings):
    assert [line for line in findings if "book/good" in line] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(findings, name):
    about = [line for line in findings if f"book/{name}" in line]
    assert any(FAULTS[name][3] in line for line in about), about


@pytest.mark.parametrize("name", RARE_FAULTS)
def test_what_is_typed_and_lost_is_found(name, check_pages, tmp_path):
    found = check(check_pages, tmp_path, [name])
    assert any(RARE_FAULTS[name][3] in line for line in found), found


def test_a_good_box_alone_passes(check_pages, tmp_path):
    assert check(check_pages, tmp_path, ["good"]) == []
