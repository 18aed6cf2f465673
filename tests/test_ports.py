"""Copies beside the work of devices: who waits for what."""

from itertools import pairwise

import pytest
import torch

import dpkit
from dpkit.ports import beside, join, record, send
from dpkit.theory.hardware import LINKS
from dpkit.theory.hardware.costs import copy_seconds


def mark(device):
    """Return when the current stream of a device is done with what it has."""
    return record(device).mark


@pytest.fixture
def devices():
    with dpkit.sim.machine(backing="meta"):
        yield dpkit.devices(2, "sim")


def empty(device):
    return torch.empty(10_000_000, device=device)


@pytest.mark.parametrize("into", [False, True])
def test_both_ends_wait_for_a_copy_that_is_opened(devices, into):
    """The sender too: it must not change what is still being sent."""
    zero, one = devices
    arrival = send(empty(zero), one, empty(one) if into else None)
    assert max(mark(zero), mark(one)) < arrival.event.mark
    arrival.open()
    assert mark(zero) >= arrival.event.mark
    assert mark(one) >= arrival.event.mark


def test_a_copy_waits_for_what_both_ends_were_asked_for(devices):
    zero, one = devices
    for device in devices:
        x = empty(device)
        x.add_(x)
    before = max(mark(zero), mark(one))
    arrival = send(empty(zero), one)
    seconds = (arrival.event.mark - before) / 1e12
    expected = copy_seconds(LINKS["nvlink2"], 40_000_000)
    assert seconds == pytest.approx(expected, rel=1e-6)


def test_memory_is_kept_until_a_copy_is_done(devices, monkeypatch):
    """Told by calls: a simulated device gives no memory away too early."""
    zero, one = devices
    told = []

    def record_stream(self, stream):
        told.append((self.device, stream))

    monkeypatch.setattr(type(empty(zero)), "record_stream", record_stream)
    streams = {d: dpkit.machine.copy_streams(d) for d in devices}
    send(empty(zero), one, into=empty(one)).open()
    assert (zero, streams[zero].sending) in told
    assert (one, streams[one].receiving) in told
    del told[:]
    send(empty(zero), one).open()
    assert (zero, streams[zero].sending) in told
    current = torch.sim.current_stream(one)
    assert (one, current) in told  # made on the stream that receives


def test_what_runs_beside_is_waited_for_by_join(devices):
    zero, _ = devices
    x, y = empty(zero), empty(zero)
    with beside({zero: record(zero)}):
        x.add_(x)
    alone = mark(zero)
    join(zero)
    assert mark(zero) > alone
    y.add_(y)


def test_one_host_has_one_thread_beside(devices):
    """Many launches take their time, whoever's device they are for."""
    with (
        dpkit.sim.trace() as timeline,
        beside({d: record(d) for d in devices}),
    ):
        for device in devices:
            for _ in range(10):
                torch.empty(1, device=device).add_(1)
    rows = {s.stream for s in timeline.spans if s.device == "host"}
    assert rows == {"communication"}
    spans = sorted(
        (s.start, s.end) for s in timeline.spans if s.device == "host"
    )
    for (_, end), (start, _) in pairwise(spans):
        assert start >= end


def test_on_a_cpu_nothing_runs_beside():
    cpu = torch.device("cpu")
    x = torch.ones(3)
    assert send(x, cpu).open() is x
    with beside({cpu: record(cpu)}):
        x += 1
    join(cpu)
    assert x.tolist() == [2, 2, 2]
