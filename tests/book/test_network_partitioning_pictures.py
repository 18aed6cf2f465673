"""Tests of dpbook.network_partitioning.pictures."""

from dpbook.network_partitioning.pictures import computing, plot_kept
from dpkit.schedules.named import gpipe, one_f_one_b
from dpkit.sim.clock.record import Span
from dpkit.sim.timeline.timeline import Timeline


def test_what_computes():
    computes = Span("sim:1", "compute", "mm", "compute", 0.5, 0.6)
    others = [
        Span("host:1", "python", "mm", "launch", 0.0, 0.1),
        Span("sim:1", "side stream", "copy to sim:0", "copy", 0.6, 0.7),
    ]
    found = computing(Timeline([computes, *others], label="simulated"))
    assert found.spans == [computes]
    assert found.label == "simulated"


def test_what_the_first_device_keeps(axes):
    schedules = {"GPipe": gpipe(2, 3), "1F1B": one_f_one_b(2, 3)}
    plot_kept(schedules, {"F": 1.0, "B": 2.0})
    gpipe_line, one_line = axes[0].lines
    assert list(gpipe_line.get_ydata()) == [0, 1, 2, 3, 2, 1, 0]
    assert list(one_line.get_ydata()) == [0, 1, 2, 1, 2, 1, 0]
    assert gpipe_line.get_xdata()[-1] == one_line.get_xdata()[-1] == 12_000
