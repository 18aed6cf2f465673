"""Tests of common.matrices and three_ways.pictures: who has what."""

from xml.etree import ElementTree

import pytest

from dpbook.common.matrices import Panels, in_a_line
from dpbook.common.plots import COLOURS
from dpbook.layer_partitioning.pictures import draw_mlp
from dpbook.three_ways.pictures import SIZES, UNIT, WIDTH, draw_ways

SVG = "{http://www.w3.org/2000/svg}"
WAYS = "network", "layer", "data"
NETWORK, LAYER, DATA = range(3)
NAMES = list(SIZES)


def parsed(picture):
    return ElementTree.fromstring(picture.svg)


def filled(picture):
    """Return what is filled: device, then x, y, width and height."""
    found = []
    for rect in parsed(picture).iter(SVG + "rect"):
        if rect.get("fill") in COLOURS and not rect.get("rx"):
            device = COLOURS.index(rect.get("fill"))
            numbers = [float(rect.get(k)) for k in "x y width height".split()]
            found.append((device, *numbers))
    return found


def held(way):
    """Return by device and matrix: the columns and the rows, from and to."""
    found = {}
    placed = in_a_line(SIZES, UNIT, WIDTH)
    frames = [
        float(rect.get("y"))
        for rect in parsed(draw_ways(*WAYS).pictures[way]).iter(SVG + "rect")
        if rect.get("stroke-dasharray")
    ]
    for device, x, y, width, height in filled(draw_ways(*WAYS).pictures[way]):
        (matrix,) = [m for m in placed if m.x <= x < m.x + m.width]
        top = frames[5 * device + placed.index(matrix)]
        columns = (x - matrix.x) / UNIT, (x + width - matrix.x) / UNIT
        rows = (y - top) / UNIT, (y + height - top) / UNIT
        found[device, matrix.name] = pytest.approx(columns), rows
    return found


def whole(name):
    rows, columns = SIZES[name]
    return (0, columns), (0, rows)


def test_network_partitioning_gives_each_device_a_layer():
    found = held(NETWORK)
    assert found == {
        **{(0, name): whole(name) for name in ("x", "W", "h")},
        **{(1, name): whole(name) for name in ("h", "V", "y")},
    }


def test_layer_partitioning_cuts_columns_then_rows():
    found = held(LAYER)
    for device, (start, end) in enumerate([(0, 2), (2, 4)]):
        assert found[device, "x"] == whole("x")
        assert found[device, "W"] == ((start, end), (0, 2))
        assert found[device, "h"] == ((start, end), (0, 4))
        assert found[device, "V"] == ((0, 2), (start, end))
        assert found[device, "y"] == whole("y")


def test_data_parallelism_cuts_the_rows_of_the_batch():
    found = held(DATA)
    for device, rows in enumerate([(0, 2), (2, 4)]):
        for name in ("x", "h", "y"):
            assert found[device, name] == (whole(name)[0], rows)
        for name in ("W", "V"):
            assert found[device, name] == whole(name)


def test_one_device_has_all_and_sends_nothing():
    (picture,) = draw_ways("one").pictures
    assert len(filled(picture)) == len(NAMES)
    assert "sends nothing" in picture.title
    heights = [
        float(parsed(drawn).get("viewBox").split()[3])
        for drawn in (picture, *draw_ways(*WAYS).pictures)
    ]
    assert heights[0] < heights[1] / 2


def test_panels_have_words_for_those_who_do_not_see_them():
    panels = draw_ways(*WAYS)
    html = panels._repr_html_()
    assert html.count('role="img"') == 3
    for picture, word in zip(panels.pictures, ("h", "parts", "gradients")):
        assert parsed(picture).get("aria-label") == picture.title
        assert word in picture.title.split()
    assert repr(Panels([])) == ""
    assert repr(panels).count("<drawing: ") == 3


def test_all_words_lie_in_the_picture():
    for picture in [*draw_ways(*WAYS).pictures, draw_mlp()]:
        root = parsed(picture)
        _, _, width, height = map(float, root.get("viewBox").split())
        for text in root.iter(SVG + "text"):
            reach = 6.5 * len(text.text)
            x = float(text.get("x"))
            anchor = text.get("text-anchor", "start")
            left = {"start": 0, "middle": reach / 2, "end": reach}[anchor]
            assert x - left >= 0, text.text
            assert x - left + reach <= width, text.text
            assert 0 < float(text.get("y")) < height


def test_two_layers_have_the_shapes_of_the_chapter():
    words = [t.text for t in parsed(draw_mlp()).iter(SVG + "text")]
    shapes = [w for w in words if w.startswith("(")]
    first = ["(3, 5)", "(5, 4)", "(3, 4)", "(4, 4)", "(3, 4)"]
    second = ["(3, 5)", "(5, 3)", "(3, 3)", "(3, 4)", "(3, 4)"]
    assert shapes == first + second
    assert {"W", "V"} <= set(words)
    assert sum("allreduce" in w for w in words) == 1
