"""Tests of timeline: where the time went, windows of time."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkit import units
from dpkit.sim.clock.record import Span
from dpkit.sim.timeline.timeline import Timeline


def compute(start, end, device="sim:0", stream="compute", **more):
    return Span(device, stream, "mm", "compute", start, end, **more)


def copy(start, end, device="sim:0", stream="stream 1", to="sim:1", **more):
    name = f"copy to {to}"
    return Span(device, stream, name, "copy", start, end, **more)


def host(start, end, kind="launch", stream="python", device="host"):
    return Span(device, stream, "mm", kind, start, end)


def spans():
    """Make spans at whole seconds, on rows where they may overlap."""
    rows = [
        ("sim:0", "compute"),
        ("sim:0", "stream 1"),
        ("sim:1", "compute"),
        ("host", "python"),
        ("host", "backward"),
    ]
    span = st.builds(
        lambda row, is_second, start, length: Span(
            *row,
            "op",
            (("compute", "copy"), ("launch", "wait"))[row[0] == "host"][
                is_second
            ],
            float(start),
            float(start + length),
        ),
        st.sampled_from(rows),
        st.booleans(),
        st.integers(3, 20),
        st.integers(0, 6),
    )
    return st.lists(span, max_size=12)


def seconds(spans):
    """Count the whole seconds in which one of the spans runs."""
    spans = list(spans)
    return sum(any(s.start <= t < s.end for s in spans) for t in range(40))


@given(spans())
def test_the_times_are_those_counted_second_by_second(some):
    summary = Timeline(some).summary()
    for name, device in summary.devices.items():
        here = [s for s in some if s.device == name]
        assert device.busy == seconds(s for s in here if s.kind == "compute")
        assert device.copying == seconds(s for s in here if s.kind == "copy")
        assert device.exposed == seconds(here) - device.busy
        assert device.idle == summary.makespan - seconds(here)
    for name, times in summary.hosts.items():
        here = [s for s in some if s.device == name]
        assert times.waiting == seconds(s for s in here if s.kind == "wait")
        assert times.busy == seconds(here) - times.waiting
        assert times.idle == summary.makespan - seconds(here)
    for row, busy in summary.streams.items():
        here = [s for s in some if (s.device, s.stream) == row]
        assert busy == seconds(s for s in here if s.kind != "wait")


@given(spans(), st.floats(1e-7, 1.0))
def test_the_times_add_up_to_the_makespan(some, unit):
    scaled = [replace(s, start=s.start * unit, end=s.end * unit) for s in some]
    summary = Timeline(scaled).summary()
    for d in summary.devices.values():
        total = d.busy + d.exposed + d.idle
        assert total == pytest.approx(summary.makespan, rel=1e-12)
        assert min(d.busy, d.exposed, d.idle) >= 0
    for h in summary.hosts.values():
        total = h.busy + h.waiting + h.idle
        assert total == pytest.approx(summary.makespan, rel=1e-12)


def test_the_makespan_counts_from_the_first_start_to_the_last_end():
    timeline = Timeline([compute(3, 4), compute(2, 9), compute(5, 6)])
    assert timeline.makespan == 7
    assert timeline.summary().makespan == 7
    assert Timeline().makespan == 0


def test_bytes_sent_and_received():
    received = Span(
        "sim:1", "compute", "copy from sim:0", "copy", 0, 1, num_bytes=8
    )
    timeline = Timeline(
        [
            copy(0, 1, num_bytes=8),
            copy(1, 2, to="host", num_bytes=4),
            compute(0, 1, num_bytes=1000),
            received,
        ]
    )
    devices = timeline.summary().devices
    moved = {n: (d.bytes_sent, d.bytes_received) for n, d in devices.items()}
    assert moved == {"sim:0": (12, 0), "sim:1": (0, 8)}


def test_the_summary_prints_as_a_table():
    timeline = Timeline(
        [
            host(0, 0.004, "launch"),
            host(0.004, 0.01, "wait"),
            compute(0.001, 0.007),
            copy(0.005, 0.009, num_bytes=2_500_000),
            compute(0.002, 0.003, device="sim:10"),
        ],
        assumptions=["Nothing waits in line."],
        label="simulated (v100, pcie3)",
    )
    assert repr(timeline.summary()) == (
        """\
simulated (v100, pcie3): 5 spans, makespan 10 ms (times in ms)

device  computing  exposed  idle  copying    sent  received
sim:0        6.00     2.00  2.00     4.00  2.5 MB       0 B
sim:10       1.00     0.00  9.00     0.00     0 B       0 B
exposed: copying while the device does not compute

host  launching  waiting  idle
host       4.00     6.00  0.00

stream          busy  idle
host python     4.00  6.00
sim:0 compute   6.00  4.00
sim:0 stream 1  4.00  6.00
sim:10 compute  1.00  9.00

assumptions
- Nothing waits in line."""
    )


def test_an_empty_timeline_has_a_summary():
    assert repr(Timeline().summary()) == "0 spans, makespan 0 s"


def test_one_line_stands_for_a_timeline():
    assert repr(Timeline()) == "<timeline: 0 spans, 0 s>"
    timeline = Timeline([compute(0, 0.0125)] * 2, label="simulated (v100)")
    assert repr(timeline) == "<timeline: simulated (v100), 2 spans, 12.5 ms>"


def test_rows_in_the_order_in_which_they_are_read():
    devices = ["sim:10", "sim:2", "host:1", "cuda:0", "host:0"]
    summary = Timeline(
        [compute(0, 1, device=d, stream="stream 2") for d in devices]
        + [compute(0, 1, device="sim:2", stream="stream 10")]
        + [compute(0, 1, device="sim:2")]
        + [host(0, 1, device="host:1", stream="backward")]
        + [host(0, 1, device="host:1")]
    ).summary()
    assert list(summary.hosts) == ["host:0", "host:1"]
    assert list(summary.devices) == ["cuda:0", "sim:2", "sim:10"]
    rows: dict[str, list[str]] = {}
    for device, stream in summary.streams:
        rows.setdefault(device, []).append(stream)
    assert rows["sim:2"] == ["compute", "stream 2", "stream 10"]
    assert rows["host:1"] == ["python", "backward", "stream 2"]


@pytest.mark.parametrize(
    ("start", "end", "ticks"),
    [
        (0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"),
        (0, 12.3, "0 5 10"),
        (0, 0.3, "0.00 0.05 0.10 0.15 0.20 0.25 0.30"),
        (0.37, 0.41, "0.37 0.38 0.39 0.40 0.41"),
        (990, 1210, "1000 1050 1100 1150 1200"),
        (0, 6e6, "0 1000000 2000000 3000000 4000000 5000000 6000000"),
    ],
)
def test_ticks_are_round(start, end, ticks):
    assert units.round_ticks(start, end) == ticks.split()


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_even_and_on_the_axis(start, length):
    end = start + length
    ticks = [float(t) for t in units.round_ticks(start, end)]
    assert 2 <= len(ticks) <= 8
    assert all(
        start - length * 1e-3 <= t <= end + length * 1e-3 for t in ticks
    )
    steps = [b - a for a, b in pairwise(ticks)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (units.show_seconds(1.5), "1.5 s"),
        (units.show_seconds(0.0004571), "457.1 µs"),
        (units.show_seconds(3e-9), "0.003 µs"),
        (units.show_seconds(12345.6), "12346 s"),
        (units.show_memory(1023), "1023 B"),
        (units.show_memory(16 * 2**30), "16 GiB"),
        (units.show_bytes(0), "0 B"),
        (units.show_bytes(102_400_000), "102.4 MB"),
        (units.show_amount(15_700_000_000_000, "FLOP"), "15.7 TFLOP"),
    ],
)
def test_amounts_carry_a_unit(words, expected):
    assert words == expected
