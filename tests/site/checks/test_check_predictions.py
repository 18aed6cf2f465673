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
    f"{predict.IF.format(place=0, number=number)}<p>{sentence}</p></div>"
    for number, sentence in ((1, "If it is busy."), (3, "If all is done."))
)
TWICE = f"{predict.IF.format(place=0, number='54.4')}<p>It is twice.</p></div>"
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
{predict.FIELD.format(label="a product", unit="ms")}{TWICE}{predict.END}
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
# Of each page: what is planted, in which file, in place of what; what is said.
FAULTS = {
    "good": [],
    "many": [
        (
            "js",
            '"; it is ", found',
            '"; it is ", "another"',
            "many does not tell its answer",
        ),
        (  # says which option is right, and not what it says
            "js",
            "option(form, found),",
            "found,",
            "many-who does not tell its answer",
        ),
        (  # knows no unit but the one that is asked
            "js",
            "[1e3, 1e6, 1e9].find(isOff)",
            "[].find(isOff)",
            "many does not say why a wrong answer is wrong",
        ),
        (  # says why another option is wrong
            "js",
            "wrong === said[i]",
            "true",
            "many-who does not say why a wrong answer is wrong",
        ),
        (
            "js",
            'addEventListener("storage", follows);',
            "",
            "many differs in another tab",
        ),
        (
            "css",
            "content-visibility: visible !important",
            "color: inherit",
            "many is folded on paper",
        ),
        (
            "css",
            "min-height: 44px",
            "height: 20px",
            "lower than 44 pixels",
        ),
    ],
    "bare": [
        (
            "html",
            'data-box="bare"><p id="told">27.2 ms</p>',
            "hidden><p>27.2 ms</p>",
            "is folded without a script",
        ),
    ],
    "unfolded": [
        (
            "js",
            "forms().forEach(foldIn);\n    forms().forEach(prepare)",
            "forms().forEach(prepare)",
            "unfolded is not folded",
        )
    ],
    "kept": [
        (
            "js",
            'fold.removeAttribute("hidden"));\n  };',
            "fold);\n  };",
            "kept stays folded after a guess",
        )
    ],
    "exact": [
        (  # takes no number as right that is rounded
            "js",
            "if (isNear(said, written)) return",
            'if (said === number(written, "")) return',
            "exact does not say why a wrong answer is wrong",
        )
    ],
    "silent": [
        (  # knows no usual error
            "js",
            "isNear(value, wrong)",
            "false",
            "silent does not say why a wrong answer is wrong",
        )
    ],
    "once": [("js", "forget(form.name);", "", "once-who does not ask again")],
    "deaf": [
        (
            "js",
            "function follow() {",
            "function follow() { all('[hidden]').forEach((fold) =>"
            " { fold.hidden = true; }); return;",
            "a link does not unfold #told",
        )
    ],
    "unsent": [
        (
            "js",
            "form.oninput =",
            "form.oldinput =",
            "unsent forgets a guess that is not sent",
        )
    ],
    "stubborn": [
        (
            "js",
            "dpkitKept.forget(DRAFT + box);",
            "",
            "stubborn keeps a guess that was taken back",
        )
    ],
    "unasked": [
        (
            "js",
            "if (!confirm(",
            "if (false && !confirm(",
            "unasked is forgotten unasked",
        )
    ],
    "overwritten": [
        (  # keeps what there was when the page was opened
            "js",
            "storage = localStorage;",
            "storage = new Proxy(localStorage, {"
            " own: Object.keys(localStorage), set(all, key, text) {"
            " this.own.push(key); all[key] = text;"
            " Object.keys(all).filter((name) => !this.own.includes(name))"
            ".forEach((name) => delete all[name]); return true; } });",
            "overwritten is forgotten when another tab answers",
        )
    ],
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_planted_is_found(name, check_pages, tmp_path):
    site = tmp_path / "_build" / "html"
    (site / "book").mkdir(parents=True)
    (tmp_path / "book").mkdir()
    files = {
        "html": PAGE.replace("NAME", name),
        "js": "".join(
            (STATIC / script).read_text("utf-8")
            for script in ("kept.js", "predict.js")
        ),
        "css": COLOURS + (STATIC / "predict.css").read_text("utf-8"),
    }
    for ending, old, new, _ in FAULTS[name]:
        assert old in files[ending]
        files[ending] = files[ending].replace(old, new)
    (site / "book" / f"{name}.html").write_text(files["html"])
    (site / f"{name}.js").write_text(files["js"])
    (site / f"{name}.css").write_text(files["css"])
    without = ["unscripted"] if name in ("good", "bare") else []
    _, said = check_pages(tmp_path, "looks", *without)
    found = [line for line in said if re.match(r"[\w ]+: \S+\.html", line)]
    for *_, words in FAULTS[name]:
        assert any(words in line for line in found), (words, found)
    assert bool(found) == bool(FAULTS[name]), found
