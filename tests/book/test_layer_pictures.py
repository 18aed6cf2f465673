"""Tests of dpbook.layer_partitioning.pictures: what the pictures show."""

import pytest

from dpbook.layer_partitioning import pictures as layer_pictures
from dpbook.layer_partitioning.alexnet import LAYERS, TALK_2012

GAINS = {"bus": ([1, 10, 100], [0.5, 1.5, 1.9]), "net": ([1, 10], [0.1, 0.9])}
PICTURES = {
    "mlp": layer_pictures.draw_mlp,
    "towers": lambda: layer_pictures.draw_towers(LAYERS, TALK_2012),
    "gains": lambda: layer_pictures.plot_gains(
        GAINS, {"bus": 5, "net": 20}, "width", "gain"
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_bytes_twice(name):
    first, again = PICTURES[name](), PICTURES[name]()
    assert first.svg == again.svg
    assert repr(first).endswith(f": {first.title}>")


def placed(point):
    """Return the layer and the tower that a point belongs to."""
    return round(-point[1]), round(point[0] / layer_pictures.TOWER)


def arrows(ax):
    """Return where each arrow goes from and to, as (layer, tower) pairs."""
    return {
        (*placed(a.xyann), *placed(a.xy))
        for a in ax.texts
        if hasattr(a, "arrow_patch") and a.arrow_patch
    }


@pytest.mark.parametrize("talk", [TALK_2012, (), LAYERS])
def test_towers_cross_where_they_talk(axes, talk):
    layer_pictures.draw_towers(LAYERS, talk)
    expected = set()
    for i in range(1, len(LAYERS)):
        for rank in (0, 1):
            for other in (0, 1):
                if rank == other or LAYERS[i] in talk:
                    expected.add((i - 1, other, i, rank))
    assert arrows(axes[0]) == expected


def test_gains_and_where_they_should_begin(axes):
    PICTURES["gains"]()
    lines = [line for line in axes[0].lines if line.get_marker() == "o"]
    found = {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in lines
    }
    assert found == GAINS
    dotted = [x for x in axes[0].lines if x.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in dotted] == [5, 20]
    colours = [line.get_color() for line in lines]
    assert [line.get_color() for line in dotted] == colours
