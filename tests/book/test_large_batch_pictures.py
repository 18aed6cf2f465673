"""Pictures of the experiment on large batches: what they show."""

from xml.etree import ElementTree

import pytest

from dpbook.common import plots
from dpbook.large_batches import pictures
from dpbook.large_batches.results import RULES
from dpbook.large_batches.runs import RECIPE

ERRORS = {
    "k·η": {1: [15.0, 17.0, 19.0], 2: [16.0, 16.0, 22.0]},
    "η": {1: [20.0, 20.0, 20.0], 2: [90.0, 30.0, 60.0]},
}
BY_RATE = {1: {0.01: 16.0, 0.02: 17.0}, 2: {0.01: 20.0, 0.02: 15.0}}
PICTURES = {
    "schedules": lambda: pictures.plot_schedules(8),
    "errors": lambda: pictures.plot_errors(ERRORS),
    "rates": lambda: pictures.plot_rates(BY_RATE),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_bytes_twice(name):
    first, again = PICTURES[name]().svg, PICTURES[name]().svg
    assert first == again
    assert ElementTree.fromstring(first).tag.endswith("svg")


def test_schedules_end_alike(axes):
    PICTURES["schedules"]()
    lines = axes[0].get_lines()
    assert len(lines) == 3
    assert [line.get_ydata()[0] for line in lines] == pytest.approx([8, 1, 1])
    for line in lines:
        rates = dict(zip(line.get_xdata(), line.get_ydata()))
        assert [rates[2], rates[7.5], rates[8]] == pytest.approx([8, 8, 0.8])


def test_errors_have_every_run_means_and_bars(axes):
    PICTURES["errors"]()
    curves = axes[0].containers
    assert [curve.get_label() for curve in curves] == ["k·η", "η"]
    line, _, (bars,) = curves[0]
    assert line.get_color() == plots.COLOURS[list(RULES).index("k·η")]
    assert list(line.get_ydata()) == [17, 18]
    # One standard deviation, 2, to each side of the mean.
    assert bars.get_segments()[0][:, 1] == pytest.approx([15, 19])
    dots = [
        y
        for line in axes[0].get_lines()
        if line.get_marker() == "."
        for y in line.get_ydata()
    ]
    assert dots == [e for way in ERRORS.values() for es in way.values()
                    for e in es]  # fmt: skip
    ticks = [text.get_text() for text in axes[0].get_xticklabels()]
    assert ticks == [str(RECIPE.batch_size), str(2 * RECIPE.batch_size)]


def test_rates_mark_the_best_and_the_rule(axes):
    PICTURES["rates"]()
    words = {
        text.get_position(): (text.get_text(), text.get_weight())
        for text in axes[0].texts
    }
    assert words == {
        (0, 0): ("16.0", "bold"),
        (0, 1): ("17.0", "normal"),
        (1, 0): ("20.0", "normal"),
        (1, 1): ("15.0", "bold"),
    }
    dots = [line.get_xydata()[0] for line in axes[0].get_lines()]
    assert [(round(x), round(y)) for x, y in dots] == [(0, 0), (1, 1)]
