"""Tests of plots: what the lines show, and equal bytes twice."""

import json
from xml.etree import ElementTree

import pytest

import dpkit
from dpbook.common.plots import COLOURS, STYLE
from dpbook.data_parallelism import pictures as plots
from dpkit.sim.timeline.drawing import INK, QUIET
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"


def record(*accuracies):
    return dpkit.TrainingRecord([], list(accuracies))


def headline():
    return tuple(
        json.loads((DATA / f"{name}.json").read_text())
        for name in ("headline", "published")
    )


PICTURES = {
    "training": lambda: plots.plot_training({"a": record(0.5, 0.75)}),
    "headline": lambda: plots.plot_headline(*headline()),
    "bars": lambda: plots.plot_bars({"a": 1.0, "b": 2.0}, "seconds"),
    "step": lambda: plots.draw_step(3),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_bytes_twice(name):
    first, again = PICTURES[name]().svg, PICTURES[name]().svg
    assert first == again
    root = ElementTree.fromstring(first)
    assert root.tag.endswith("svg")
    assert "Date" not in first


@pytest.mark.parametrize("name", PICTURES)
def test_text_stands_in_for_the_picture(name):
    picture = PICTURES[name]()
    assert repr(picture) == f"<picture: {picture.title}>"
    assert picture._repr_svg_() == picture.svg


def test_training_lines(axes):
    plots.plot_training({"a": record(0.5, 0.75), "b": record(0.25, 0.5)})
    lines = axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["a", "b"]
    assert list(lines[1].get_xdata()) == [1, 2]
    assert list(lines[1].get_ydata()) == [0.25, 0.5]
    assert lines[0].get_linewidth() > lines[1].get_linewidth()


def test_headline_lines(axes):
    recorded, published = headline()
    plots.plot_headline(recorded, published)
    lines = axes[0].get_lines()
    drawn = {
        (line.get_color(), tuple(line.get_ydata())): list(line.get_xdata())
        for line in lines
    }
    colours = {
        line.get_label()[0]: line.get_color()
        for line in lines
        if line.get_label().endswith("seeds")
    }
    for run in recorded["runs"]:
        colour = colours[str(run["num_devices"])]
        epochs = list(range(1, len(run["accuracies"]) + 1))
        assert drawn[colour, tuple(run["accuracies"])] == epochs
    labels = {line.get_label(): line.get_ydata()[0] for line in lines}
    assert labels["published, 1 device: 0.83"] == 0.83
    assert labels["published, 2 devices: 0.84"] == 0.84
    assert axes[0].get_ylim() == (0, 1)


def test_bars(axes):
    plots.plot_bars({"a": 1.5, "b": 2.0}, "seconds")
    assert [bar.get_width() for bar in axes[0].patches] == [1.5, 2.0]
    assert axes[0].get_xlabel() == "seconds"
    assert axes[0].get_xlim()[0] <= 0 < 2 < axes[0].get_xlim()[1]


def test_step_boxes(axes):
    plots.draw_step(3)
    words = {text.get_text() for text in axes[0].texts}
    for rank in range(3):
        assert {f"shard {rank},\ngradient {rank}", f"update {rank}"} <= words


def test_the_style_has_the_colours_of_the_drawings():
    style = STYLE.read_text()
    assert {c for c in (INK, QUIET, *COLOURS) if c[1:] not in style} == set()
