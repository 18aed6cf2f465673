"""Channels and copies beside the work of devices: who waits for what."""

from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch

import dpkit
from dpkit.sim.hardware import LINKS
from dpkit.sim.hardware.costs import copy_seconds
from dpkit.streams import (
    Channel,
    copy_streams,
    on_side_streams,
    receive,
    record_event,
    send,
    wait_for_side_streams,
)


def mark(device):
    """Return when the current stream of a device is done with what it has."""
    return record_event(device).mark


@pytest.fixture
def devices():
    with dpkit.sim.machine(backing="meta"):
        yield dpkit.devices(2, "sim")


def empty(device):
    return torch.empty(10_000_000, device=device)


@pytest.mark.parametrize("into", [False, True])
def test_both_ends_wait_for_a_copy(devices, into):
    """The sender too: it must not change what is still being sent."""
    zero, one = devices
    pending = send(empty(zero), one, empty(one) if into else None)
    assert max(mark(zero), mark(one)) < pending.arrived.mark
    pending.wait()
    assert mark(zero) >= pending.arrived.mark
    assert mark(one) >= pending.arrived.mark


def test_a_copy_waits_for_what_both_ends_were_asked_for(devices):
    zero, one = devices
    for device in devices:
        x = empty(device)
        x.add_(x)
    before = max(mark(zero), mark(one))
    pending = send(empty(zero), one)
    seconds = (pending.arrived.mark - before) / 1e12
    expected = copy_seconds(LINKS["nvlink2"], 40_000_000)
    assert seconds == pytest.approx(expected, rel=1e-6)


def test_memory_is_kept_until_a_copy_is_done(devices, monkeypatch):
    """Told by calls: a simulated device gives no memory away too early."""
    zero, one = devices
    told = []

    def record_stream(self, stream):
        told.append((self.device, stream))

    monkeypatch.setattr(type(empty(zero)), "record_stream", record_stream)
    streams = {d: copy_streams(d) for d in devices}
    send(empty(zero), one, into=empty(one)).wait()
    assert (zero, streams[zero].sending) in told
    assert (one, streams[one].receiving) in told
    del told[:]
    send(empty(zero), one).wait()
    assert (zero, streams[zero].sending) in told
    current = torch.sim.current_stream(one)
    assert (one, current) in told  # made on the stream that receives


def test_what_runs_on_side_streams_is_waited_for(devices):
    zero, _ = devices
    x, y = empty(zero), empty(zero)
    with on_side_streams({zero: record_event(zero)}):
        x.add_(x)
    alone = mark(zero)
    wait_for_side_streams(zero)
    assert mark(zero) > alone
    y.add_(y)


def test_one_host_has_one_thread_beside(devices):
    """Many launches take their time, whoever's device they are for."""
    with (
        dpkit.sim.trace() as timeline,
        on_side_streams({d: record_event(d) for d in devices}),
    ):
        for device in devices:
            for _ in range(10):
                torch.empty(1, device=device).add_(1)
    rows = {s.stream for s in timeline.spans if s.device == "host"}
    assert rows == {"communication"}
    # A stream that another test has named before has both names.
    there = {s.stream for s in timeline.spans if s.device != "host"}
    assert {name.split("; ")[-1] for name in there} == {"side stream"}
    spans = sorted(
        (s.start, s.end) for s in timeline.spans if s.device == "host"
    )
    for (_, end), (start, _) in pairwise(spans):
        assert start >= end


def test_on_a_cpu_nothing_runs_beside():
    cpu = torch.device("cpu")
    x = torch.ones(3)
    assert send(x, cpu).wait() is x
    with on_side_streams({cpu: record_event(cpu)}):
        x += 1
    wait_for_side_streams(cpu)
    assert x.tolist() == [2, 2, 2]


def product(device, size=2000):
    a = torch.ones(size, size, device=device)
    return lambda: a @ a


def test_what_is_sent_arrives(get_devices):
    source, target = get_devices(2)
    x = torch.randn(3, 4, device=source)
    y = Channel(source, target).send(x).wait()
    assert y.device == target
    assert torch.equal(y.cpu(), x.cpu())


def test_a_device_may_be_given_by_its_name():
    x = torch.ones(3, device="sim:0")
    for act in (send, Channel("sim:0", "sim:1").send):
        given = (x, "sim:1") if act is send else (x,)
        assert act(*given).wait().device == torch.device("sim:1")
    assert send(x, "sim:0").wait() is x


NO_DEVICES = {
    "target": lambda d: send(torch.ones(3, device="sim:0"), d),
    "source": lambda d: Channel(d, "sim:1"),
    "device": lambda d: receive(torch.ones(3), d),
}


@pytest.mark.parametrize("name", NO_DEVICES)
def test_what_is_no_device(name):
    for given in ("simm:1", 1.5, None):
        told = rf"not a device \({name}: {given!r}\)"
        with pytest.raises(TypeError, match=told):
            NO_DEVICES[name](given)
    with pytest.raises(RuntimeError, match="device: sim:99, simulated dev"):
        NO_DEVICES[name]("sim:99")


def test_to_itself_nothing_is_copied():
    (device,) = dpkit.devices(1, "sim")
    x = torch.ones(3, device=device)
    assert Channel(device, device).send(x).wait() is x


def seconds(send):
    """How long until the sender is done, who has more to do."""
    source, target = dpkit.devices(2, "sim")
    x = torch.ones(1000, 1000, device=source)
    work, busy = product(source), product(target, 6000)
    with dpkit.Timer([source, target]):
        pass
    start = dpkit.sim.now()
    busy()  # the receiver has work for a long time
    y = send(source, target, x)
    work()
    torch.sim.synchronize(source)
    return dpkit.sim.now() - start, y


def test_a_busy_receiver_does_not_hold_up_the_sender():
    with dpkit.sim.machine(backing="meta"):
        plain, _ = seconds(lambda source, target, x: x.to(target))
        beside, _ = seconds(
            lambda source, target, x: Channel(source, target).send(x)
        )
    assert beside < plain / 5


def test_only_who_asks_for_it_waits():
    """The work after opening starts when the copy is there."""
    source, target = dpkit.devices(2, "sim")
    x = torch.ones(8000, 8000, device=source)
    work = product(target, 500)
    dpkit.synchronize([source, target])
    with dpkit.sim.trace() as timeline:
        pending = Channel(source, target).send(x)
        work()
        pending.wait()
        work()
    spans = [s for s in timeline.spans if s.device == "sim:1"]
    (copy,) = [s for s in spans if s.kind == "copy"]
    first, second = [s for s in spans if s.kind == "compute"]
    assert first.start < copy.end
    assert second.start >= copy.end


def test_what_is_sent_is_ready():
    """The copy starts when the work before it is done."""
    source, target = dpkit.devices(2, "sim")
    work = product(source)
    dpkit.synchronize([source, target])
    with dpkit.sim.trace() as timeline:
        Channel(source, target).send(work())
    spans = [s for s in timeline.spans if s.device == "sim:0"]
    (copy,) = [s for s in spans if s.kind == "copy"]
    (mm,) = [s for s in spans if s.kind == "compute"]
    assert copy.start >= mm.end


class Recorded:
    """Streams, events and a tensor that write down what is asked of them."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def __getattr__(self, method):
        def call(*args, **kwargs):
            names = [getattr(arg, "name", arg) for arg in args]
            self.calls.append((self.name, method, *names))
            return self

        return call


def test_memory_is_kept_until_the_copy_is_done(monkeypatch):
    """On CUDA a tensor that is let go could be written over meanwhile."""
    calls = []
    source, target = dpkit.devices(2, "sim")
    channel = Channel(source, target)
    channel._streams = [
        Recorded("sending", calls),
        Recorded("receiving", calls),
    ]
    module = Recorded("module", calls)
    module.current_stream = lambda device: Recorded(f"work {device}", calls)
    module.stream = lambda stream: nullcontext()
    monkeypatch.setattr("dpkit.streams._module", lambda device: module)
    x = Recorded("x", calls)
    x.device = target
    channel.send(x).wait()
    assert calls == [
        ("sending", "wait_stream", "work sim:0"),
        ("x", "to", target),
        ("x", "record_stream", "sending"),
        ("receiving", "record_event"),
        ("work sim:1", "wait_event", "receiving"),
        ("x", "record_stream", "work sim:1"),
    ]


@pytest.mark.parametrize("pinned", [True, False])
def test_a_batch_is_received_beside_the_step_before(pinned):
    """Only from pinned memory; what uses it waits for it."""
    one = dpkit.devices(2, "sim")[1]
    x = torch.ones(3000, 1000)
    x = x.pin_memory() if pinned else x
    w = torch.ones(1000, 1000, device=one)
    with dpkit.sim.trace() as timeline:
        for _ in range(4):
            w @ w
        received = receive(x, one)
        received + 1
    spans = {s.name: s for s in timeline.spans if s.kind != "launch"}
    copy, last = spans["copy from host"], spans["mm"]
    assert (copy.start < last.start) == pinned
    assert spans["add"].start >= max(copy.end, last.end)
    assert any(s.kind == "wait" for s in timeline.spans) != pinned


def test_what_is_received_is_never_the_same_tensor():
    zero, one = dpkit.devices(2, "sim")
    for x in (
        torch.ones(3),
        torch.ones(3).pin_memory(),
        torch.ones(3).to(one),
    ):
        for device in (zero, one, "cpu"):
            y = receive(x, device)
            assert y.device == torch.device(device)
            y += 1
            assert x.tolist() == [1, 1, 1]
