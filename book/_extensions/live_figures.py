"""Make live figures live: an id, controls, a script, and the frames of each.

A frame is what the first touch of a control shows. The frames are made when
the site is built, by the function that made the figure in the notebook.
"""

import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from live_controls import button, controls, element
from sphinx.application import Sphinx

import dpbook
import dpkit
from dpbook.explore.all import FIGURES

FOLDER = "_static/live/frames"
FIGURE = re.compile(
    r'<figure class="live"( aria-label="[^"]*")>(.*?)'
    r'<script type="application/json">(?P<told>.*?)</script>',
    re.DOTALL,
)
FACTS = '<table class="live-facts">'
SENTENCE = re.compile(r'<p class="live-sentence">.*?</p>', re.DOTALL)
MOVING = "data-step"  # marks a picture that moves


def frames_of(told: dict[str, Any]) -> str:
    """Return the frames as JSON, for what a figure tells the page."""
    starts = {c["name"]: c["start"] for c in told["controls"]}
    found = [
        [move, json.loads(shown.as_json())]
        for move, shown in FIGURES[told["name"]].frames(**starts)
    ]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def write_frames(folder: Path, name: str, frames: str) -> str:
    """Write a script that holds the frames; return its address there."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"dpkitFrames[{json.dumps(name)}] = {frames};\n"
    (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return f"{name}.js?v={zlib.crc32(text.encode()):08x}"


def name_figure(kind: str, count: Counter[str]) -> str:
    """Name the next figure of a kind on a page, and count it."""
    count[kind] += 1
    return kind if count[kind] == 1 else f"{kind}-{count[kind]}"


def with_controls(inside: str, told: dict[str, Any], name: str) -> str:
    """Put the controls before what a figure shows.

    What it shows begins with the sentence: what a touch comes to.

    Args:
        inside: What the figure shows, as HTML.
        told: What it tells the page.
        name: Its id.
    """
    sentence = SENTENCE.search(inside)
    assert sentence is not None
    shown = sentence[0] + inside.replace(sentence[0], "", 1)
    return controls(told, name) + element("div", shown, class_="live-shown")


def with_steps(inside: str) -> str:
    """Put buttons below the pictures that go through one that moves."""
    row = element(
        "div",
        button("← messages") + button("messages →"),
        class_="live-buttons live-steps pst-js-only",
        hidden=MOVING not in inside,
    )
    return inside.replace(FACTS, row + FACTS, 1)


def with_ids(body: str, page: str, folder: Path) -> tuple[str, int]:
    """Name the figures of a page; return its body, and how many there are."""
    count: Counter[str] = Counter()
    moves = MOVING in body  # some figure, at its start

    def named(match: re.Match[str]) -> str:
        told = json.loads(match["told"])
        name = name_figure(told["name"], count)
        # Two pages may have a figure of one kind, each with its start.
        file = write_frames(folder, f"{page}-{name}", frames_of(told))
        # Lists need the whole width; other controls stand beside the picture.
        is_list = any(c["kind"] == "lists" for c in told["controls"])
        mark = (
            f'<figure class="live{"" if is_list else " full-width"}"'
            f' id="live-{name}" data-frames="{file}"{match[1]}>'
        )
        inside = with_controls(match[2], told, f"live-{name}")
        if moves:
            inside = with_steps(inside)
        end = match[0].partition(match[2])[2]
        return mark + inside + end

    body = FIGURE.sub(named, body)
    return body, count.total()


def package_checksum() -> int:
    """Return a number that changes with what makes the figures of a page.

    These are the packages, which make the frames, and the extensions.
    """
    found = 0
    here = str(Path(__file__).parent)
    for folder in (dpkit.__path__[0], dpbook.__path__[0], here):
        for path in sorted(Path(folder).rglob("*.py")):
            found = zlib.crc32(path.read_bytes(), found)
    return found


def make_live(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: object,
) -> None:
    """Prepare a page that has live figures, and no other."""
    if app.builder.name != "html" or FACTS not in context.get("body", ""):
        return
    folder = Path(app.outdir, FOLDER)
    body, found = with_ids(context["body"], Path(pagename).name, folder)
    if found:
        context["body"] = body
        app.add_css_file("live/figure.css")
        app.add_js_file("live/engine.js", loading_method="defer")
        app.add_js_file("live/figure.js", loading_method="defer")
        if MOVING in body:
            app.add_js_file("live/steps.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; a changed source writes all pages again."""
    app.add_config_value("live_figures_package", package_checksum(), "html")
    app.connect("html-page-context", make_live)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
