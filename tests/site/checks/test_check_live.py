"""The check of live figures finds what is planted, and says where.

Each test opens one page: without a fault, or with all that can be told apart.
"""

import base64
import gzip
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import live_figures
import pack_python
import pytest

from dpbook.common.live import live
from dpbook.explore.pipeline import PIPELINE
from dpbook.explore.step import STEP

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SCRIPTS = Path(pack_python.ROOT, "book", "_static", "live")
PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A page</title>
<link rel="stylesheet" href="../_static/live/figure.css">
<script defer src="../_static/live/engine.js"></script>
<script defer src="../_static/live/figure.js"></script>
<style>html[data-theme="dark"] {{ background: #111; color: #eee;
--pst-color-background: #111; --pst-color-text-base: #eee; }}</style>
</head>
<body><main><h1>A page</h1>
{body}
</main></body>
</html>
"""


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def change_a_frame(folder):
    """Write another number into a frame."""
    (path,) = folder.glob("frames/*.js")
    change(path, "a step takes 4", "a step takes 5")


def change_the_theory(folder):
    """Let the Python of the pages be of an older book."""
    path = folder / "theory.js"
    text = path.read_text(encoding="utf-8")
    told = json.loads(text[text.index("{") : text.rindex(";")])
    packed = gzip.decompress(base64.b64decode(told["packed"]))
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(packed)) as old,
        zipfile.ZipFile(out, "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"a step takes", b"a stop takes"))
    whole = out.getvalue()
    told["index"][0][1] = len(whole)
    told["packed"] = base64.b64encode(gzip.compress(whole)).decode()
    path.write_text(f"dpkitPython.parts.theory = {json.dumps(told)};\n")


def unbind_a_slider(folder):
    old = "slider.oninput = () => set("
    change(
        folder / "figure.js", old, old.replace("set", 'key !== "hop" && set')
    )


def silence_the_presets(folder):
    change(folder / "figure.js", "chosen.textContent = words;", "")


def keep_the_start_alone(folder):
    """Compare with what was at the start, whatever moved since."""
    change(folder / "figure.js", "before = drawn;", "before = start;")


def forget_a_move(folder):
    """Compare with the last stop of a slider, not with where it began."""
    change(
        folder / "figure.js", "else if (key !== touched) before", "else before"
    )


def hide_what_is_old(folder):
    """Show old numbers as new, and not how much of Python is loaded."""
    change(folder / "figure.js", 'toggle("live-old", isOld)', "contains('')")
    change(folder / "engine.js", "bar.value = share;", "")


NAMES = {"pipeline": PIPELINE, "step": STEP}
# By name: the figure, what is planted, and what is said, in this order.
FAULTS = {
    "good": ("pipeline", [], []),
    "many": (
        "pipeline",
        [
            hide_what_is_old,
            unbind_a_slider,
            silence_the_presets,
            change_a_frame,
            change_the_theory,
        ],
        [
            "nothing says how much of Python is loaded",
            "numbers are not marked as old while Python is loaded",
            "a refusal does not say that numbers are old",
            "the control does nothing: hop, ms",
            *(
                f"the preset “{words}” does not say what it sets"
                for words in PIPELINE.presets
            ),
            r"\d+ of \d+ answers are not Python's, such as that for \{.+\}",
            r"1 of \d+ frames are not Python's, such as that for \{.+\}",
            r"from a disk, a sent view is not shown \(.+\)",
        ],
    ),
    "start": (
        "step",
        [keep_the_start_alone],
        [r"when images moves, this is not said: Before \(images: 256\)"],
    ),
    "move": (
        "step",
        [forget_a_move],
        [r"when network moves, this is not said: Before \(network: LeNet\)"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_planted_is_found_and_nothing_else(
    name, packed, check_pages, tmp_path
):
    figure, plants, patterns = FAULTS[name]
    site = tmp_path / "_build" / "html"
    (site / "book").mkdir(parents=True)
    (tmp_path / "book").mkdir()
    folder = site / "_static" / "live"
    shutil.copytree(SCRIPTS, folder)
    pack_python.put_into_site(packed, site)
    html = live(NAMES[figure])._repr_html_()
    body, _ = live_figures.with_ids(html, figure, folder / "frames")
    page = PAGE.format(body=body)
    (site / "book" / "page.html").write_text(page, encoding="utf-8")
    for plant in plants:
        plant(folder)
    _, said = check_pages(tmp_path, "live")
    found = [
        match[1]
        for line in said
        if (match := re.match(r"\w+: book/page\.html.*?: (.*)", line))
    ]
    assert len(found) == len(patterns), found
    for pattern, words in zip(patterns, found, strict=True):
        assert re.fullmatch(rf"live-\w+: {pattern}", words), words
