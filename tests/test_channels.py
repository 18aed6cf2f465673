"""Channels: what arrives, when, and whom it holds up."""

from contextlib import nullcontext

import torch

import dpkit
from dpkit.channels import Channel


def product(device, size=2000):
    a = torch.ones(size, size, device=device)
    return lambda: a @ a


def test_what_is_sent_arrives(get_devices):
    source, target = get_devices(2)
    x = torch.randn(3, 4, device=source)
    y = Channel(source, target).send(x).open()
    assert y.device == target
    assert torch.equal(y.cpu(), x.cpu())


def test_to_itself_nothing_is_copied():
    (device,) = dpkit.devices(1, "sim")
    x = torch.ones(3, device=device)
    assert Channel(device, device).send(x).open() is x


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


def test_who_opens_it_waits():
    """The work after opening starts when the copy is there."""
    source, target = dpkit.devices(2, "sim")
    x = torch.ones(8000, 8000, device=source)
    work = product(target, 500)
    dpkit.synchronize([source, target])
    with dpkit.sim.trace() as timeline:
        parcel = Channel(source, target).send(x)
        work()
        parcel.open()
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
    monkeypatch.setattr("dpkit.channels._module", lambda device: module)
    x = Recorded("x", calls)
    x.device = target
    channel.send(x).open()
    assert calls == [
        ("sending", "wait_stream", "work sim:0"),
        ("x", "to", target),
        ("x", "record_stream", "sending"),
        ("receiving", "record_event"),
        ("work sim:1", "wait_event", "receiving"),
        ("x", "record_stream", "work sim:1"),
    ]
