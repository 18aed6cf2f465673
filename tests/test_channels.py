"""Channels: what arrives, when, and whom it holds up."""

import pytest
import torch

import dpkit
from dpkit.channels import Channel


def product(device, size=2000):
    a = torch.ones(size, size, device=device)
    return lambda: a @ a


@pytest.mark.parametrize("kind", ["sim", "cpu"])
def test_what_is_sent_arrives(kind):
    source, target = dpkit.devices(2, kind)
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
