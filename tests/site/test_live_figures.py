"""Live figures on a page: whole without a script, and prepared for one."""

import gzip
import json
import re

import live_figures
import pytest

from dpbook.common.live import live
from dpbook.explore.all import FIGURES
from dpbook.explore.figure import Choice, LiveFigure, Shown
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
