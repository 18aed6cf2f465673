"""Live figures on a page: whole without a script, and prepared for one."""

import gzip
import json
import re

import live_controls
import live_figures
import pytest
from bs4 import BeautifulSoup

from dpbook.common.live import live
from dpbook.explore.all import FIGURES
from dpbook.explore.figure import Choice, Lists, LiveFigure, Number, Shown
from dpbook.explore.pipeline import PIPELINE

# Compressed. A frame of the pipeline has two timelines.
MOST_BYTES_OF_FRAMES = 120_000


def test_a_cell_shows_all_without_a_script():
    html = live(PIPELINE, schedule="zb-h1")._repr_html_()
    shown = PIPELINE.ask(schedule="zb-h1")
    assert len(shown.pictures) == 2
    assert all(picture.svg in html for picture in shown.pictures)
    for name, *values in shown.facts:
        cells = "".join(f"<td>{value}</td>" for value in values)
        assert f"{name}</th>{cells}</tr>" in html
    assert f">{shown.sentence}</p>" in html


def test_a_cell_that_would_show_nothing_fails():
    with pytest.raises(ValueError, match="devices is a whole number"):
        live(PIPELINE, devices=0)


def test_words_cannot_end_the_script():
    control = Choice("<b>", "</script>", ("</script>",))
    figure = LiveFigure(
        "x", "<x>", lambda a: Shown(sentence=a), {"a": control}
    )
    html = live(figure)._repr_html_()
    assert html.count("</script>") == 1
    told = re.search(r"json\">(.*?)</script>", html)[1]
    assert json.loads(told)["controls"][0]["start"] == "</script>"
    assert 'aria-label="&lt;x&gt;"' in html


@pytest.fixture
def page(tmp_path):
    """Return the body of a page with two figures of a kind, and its frames."""
    cells = [live(PIPELINE), live(PIPELINE, schedule="gpipe", devices=2)]
    body = "\n".join(cell._repr_html_() for cell in cells)
    body, count = live_figures.with_ids(body, "one", tmp_path)
    assert count == 2
    return body, tmp_path


def test_two_figures_of_a_kind_have_an_id_each(page):
    body, _ = page
    ids = re.findall(r'<figure class="live[^"]*" id="([^"]+)"', body)
    assert ids == ["live-pipeline", "live-pipeline-2"]


def test_its_controls_stand_in_the_page_at_their_start(page):
    body, _ = page
    second = BeautifulSoup(body, "html.parser").find_all("figure")[1]
    side, shown = second.find_all("div", recursive=False)
    assert side["class"] == ["live-controls", "pst-js-only"]
    kinds = [part["class"][0] for part in shown.find_all(recursive=False)]
    assert kinds == ["live-sentence", "live-pictures", "live-facts"]
    starts = {"schedule": "gpipe", "devices": "2"}
    for name, control in PIPELINE.controls.items():
        (row,) = side.select(f'[data-control="{name}"]')
        entry = row.select_one(f"#live-pipeline-2-{name}")
        assert row.label["for"] == entry["id"]
        start = starts.get(
            name,
            live_controls.written(control.start)
            if isinstance(control, Number)
            else control.start,
        )
        if entry.name == "select":
            (chosen,) = entry.select("option[selected]")
            assert chosen.text == start
        else:
            assert entry["value"] == start
        assert ("hidden" in row.attrs) is not_shown(control, starts)
    presets = [b["data-preset"] for b in side.select("[data-preset]")]
    assert presets == [*PIPELINE.presets, ""]


def not_shown(control, starts):
    """Return whether a control means nothing for the other settings."""
    if control.shown_for is None:
        return False
    other, values = control.shown_for
    return starts.get(other, PIPELINE.start[other]) not in values


@pytest.mark.parametrize(
    ("value", "words"),
    [(16384, "16,384"), (0.25, "0.25"), (1.0, "1"), (1234.5, "1,234.5")],
)
def test_a_field_writes_numbers_as_the_script_does(value, words):
    assert live_controls.written(value) == words


def test_lists_keep_the_width_and_stand_above_their_picture(tmp_path):
    (name,) = [n for n, f in FIGURES.items() if has_lists(f)][:1]
    cell = live(FIGURES[name])._repr_html_()
    body, _ = live_figures.with_ids(cell, "one", tmp_path)
    assert "full-width" not in body.split(">")[0]
    page = BeautifulSoup(body, "html.parser")
    lines = page.select(".live-line")
    (control,) = [
        c for c in FIGURES[name].controls.values() if isinstance(c, Lists)
    ]
    written = [[b.text for b in line.find_all("button")] for line in lines]
    assert written == [x.split() for x in control.start.split("\n")]


def has_lists(figure):
    return any(isinstance(c, Lists) for c in figure.controls.values())


def test_each_has_the_frames_of_its_start(page):
    body, folder = page
    names = re.findall(r'data-frames="([^"]+)\.js\?v=[0-9a-f]{8}"', body)
    assert names == ["one-pipeline", "one-pipeline-2"]
    text = (folder / "one-pipeline-2.js").read_text(encoding="utf-8")
    start = 'dpkitFrames["one-pipeline-2"] = '
    assert text.startswith(start)
    frames = json.loads(text.removeprefix(start).rstrip(";\n"))
    moves = [move for move, _ in frames]
    assert {"devices": 4} in moves  # the start of the other
    shown = PIPELINE.ask(schedule="gpipe", devices=4)
    assert frames[moves.index({"devices": 4})][1] == json.loads(
        shown.as_json()
    )


@pytest.mark.parametrize("name", FIGURES)
def test_the_frames_of_a_figure_are_few_bytes(name):
    told = FIGURES[name].for_page()
    frames = live_figures.frames_of(told)
    assert len(gzip.compress(frames.encode())) <= MOST_BYTES_OF_FRAMES
