"""Tests of dpbook.network_partitioning.pictures."""

from collections import Counter

from dpbook.network_partitioning.pictures import by_pass, plot_kept
from dpkit.theory.clock.record import Span
from dpkit.theory.pipelines.schedules import gpipe, one_f_one_b
from dpkit.theory.timeline.timeline import Timeline


def launched(name, stream, start):
    return Span("host:1", stream, name, "launch", start, start + 0.1)


def ran(name, start):
    return Span("sim:1", "compute", name, "compute", start, start + 0.5)


def test_forward_backward_and_what_comes_after():
    launches = [
        launched("mm", "python", 0.0),
        launched("mm", "backward", 0.2),
        launched("view", "backward", 0.3),  # nothing runs
        launched("mm", "python", 0.4),
        launched("mm", "backward", 0.6),
        launched("div_", "python", 0.8),
    ]
    names = "mm", "mm", "mm", "mm", "div_"
    runs = [ran(name, 1.0 + i) for i, name in enumerate(names)]
    told = by_pass(Timeline(launches + runs[::-1], label="simulated"))
    assert [span.start for span in told.spans] == [1, 2, 3, 4, 5]
    assert [span.kind for span in told.spans] == [
        "forward",
        "traced backward",
        "forward",
        "traced backward",
        "after both",
    ]
    assert told.label == "simulated"


def test_each_device_has_its_own_launches():
    other = [
        Span("host:2", "backward", "mm", "launch", 0.0, 0.1),
        Span("sim:2", "compute", "mm", "compute", 0.5, 0.6),
    ]
    mine = [
        launched("mm", "python", 0.0),
        launched("relu", "backward", 0.1),
        ran("mm", 0.4),
        ran("relu", 0.9),
    ]
    found = by_pass(Timeline(mine + other)).spans
    assert Counter((span.device, span.kind) for span in found) == {
        ("sim:1", "forward"): 1,
        ("sim:1", "traced backward"): 1,
        ("sim:2", "traced backward"): 1,
    }


def test_what_the_first_device_keeps(axes):
    schedules = {"GPipe": gpipe(2, 3), "1F1B": one_f_one_b(2, 3)}
    plot_kept(schedules, {"F": 1.0, "B": 2.0})
    gpipe_line, one_line = axes[0].lines
    assert list(gpipe_line.get_ydata()) == [0, 1, 2, 3, 2, 1, 0]
    assert list(one_line.get_ydata()) == [0, 1, 2, 1, 2, 1, 0]
    assert gpipe_line.get_xdata()[-1] == one_line.get_xdata()[-1] == 12_000
