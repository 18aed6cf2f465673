"""What starts as it is issued is placed at once: the same as in the queues.

Each program runs twice, as it is and with all work in the queues.
"""

import random

import pytest
import torch
from torch import nn

import dpkit
from dpkit.sim.clock.queues import Queues

MACHINES = {
    "one host": {},
    "a host for each": {"hosts": "per_device"},
    "a host for each, one path": {"hosts": "per_device", "link": "pcie3"},
    "no peer to peer": {"link": "pcie3", "accelerator": "k80"},
    "two nodes": {"num_devices": 4, "ranks_per_node": 2},
    "a slow device": {"slow": {1: 1.7}},
}


def side_streams():
    """Do things at random on three devices, with two streams each."""
    drawn = random.Random(1)
    torch.manual_seed(0)
    xs = [torch.rand(200, 200, device=f"sim:{i}") for i in range(3)]
    streams = [[torch.sim.Stream(x.device) for _ in range(2)] for x in xs]
    events = []
    for _ in range(300):
        i, chance = drawn.randrange(3), drawn.random()
        stream = drawn.choice(streams[i])
        with torch.sim.stream(stream):
            if chance < 0.5:
                xs[i] = xs[i] @ xs[i] * 1e-3
            elif chance < 0.7:
                source = xs[drawn.randrange(3)]
                xs[i] = source.to(xs[i].device, non_blocking=True)
            elif chance < 0.8:
                events.append(torch.sim.Event(enable_timing=True))
                events[-1].record()
            elif chance < 0.9 and events:
                stream.wait_event(drawn.choice(events))
            elif chance < 0.95:
                stream.synchronize()
            else:
                xs[i] = xs[i] + 1
    torch.sim.synchronize()
    times = [events[0].elapsed_time(e) for e in events if e.query()]
    return [x.cpu() for x in xs], times


def copies():
    """Copy long and short tensors, so that ports and paths are awaited."""
    drawn = random.Random(2)
    streams = [
        [torch.sim.Stream(f"sim:{i}") for _ in range(3)] for i in range(4)
    ]
    for _ in range(200):
        source, target = drawn.sample(range(4), 2)
        size = drawn.choice([10, 10**4, 10**6])
        x = torch.zeros(size, device=f"sim:{source}")
        with (
            torch.sim.stream(drawn.choice(streams[source])),
            torch.sim.stream(drawn.choice(streams[target])),
        ):
            y = x.to(f"sim:{target}", non_blocking=True)
            if drawn.random() < 0.1:
                y.cpu()
    torch.sim.synchronize()


def a_host_that_is_behind():
    """Copy over one path: late in backward, and then from an early host."""
    x, y = (torch.ones(3, device=f"sim:{i}") for i in (0, 2))
    big = torch.zeros(10**7, device="sim:1")
    x.requires_grad_()
    for _ in range(300):
        x + 1  # the hosts of sim:0 and sim:2 get ahead
        y + 1
    x.to("sim:2").sum().backward()
    far = big.to("sim:3")
    torch.sim.synchronize()
    return far[:3].cpu()


def training():
    """Train on two devices, with a copy back and forth inside a step."""
    torch.manual_seed(0)
    first, second = nn.Linear(30, 40).to("sim:0"), nn.Linear(40, 5).to("sim:1")
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters)
    for _ in range(3):
        optimizer.zero_grad()
        hidden = first(torch.rand(8, 30, device="sim:0")).relu()
        loss = second(hidden.to("sim:1")).square().mean()
        (loss + hidden.to("sim:2").sum().to("sim:1") * 0.1).backward()
        optimizer.step()
        loss.item()
    return [p.detach().cpu() for p in parameters]


def replicas():
    """Add up gradients in buckets beside backward."""
    devices = dpkit.devices(3, "sim")
    torch.manual_seed(0)
    layers = [nn.Linear(20, 20) for _ in range(4)]
    net = dpkit.DataParallel(nn.Sequential(*layers).to(devices[0]), devices)
    for _ in range(2):
        net(torch.rand(9, 20, device=devices[0])).square().sum().backward()
    return [p.grad.cpu() for p in net.module.parameters()]


PROGRAMS = [side_streams, copies, a_host_that_is_behind, training, replicas]


def run(program, machine, is_traced):
    """Return the spans, the peaks, the time and the values of a program."""
    with dpkit.sim.machine(**machine):
        before = dpkit.sim.now()
        if not is_traced:
            return repr(program()), dpkit.sim.now() - before
        with dpkit.sim.trace() as timeline:
            values = repr(program())
        spans = sorted(map(repr, timeline.spans))
        return spans, timeline.blocks, values, dpkit.sim.now() - before


@pytest.mark.parametrize("is_traced", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", MACHINES)
def test_it_is_as_in_the_queues(name, program, is_traced, monkeypatch):
    dpkit.sim.register()
    found = run(program, MACHINES[name], is_traced)
    add = Queues.add
    monkeypatch.setattr(
        Queues, "add", lambda queues, work, after=(), until=0: add(
            queues, work, after
        )
    )  # fmt: skip
    assert run(program, MACHINES[name], is_traced) == found


def test_much_is_placed_at_once(monkeypatch):
    """Or the test above would compare the queues with themselves."""
    dpkit.sim.register()
    counts = {True: 0, False: 0}
    add = Queues.add

    def counted(queues, work, after=(), until=0):
        add(queues, work, after, until)
        counts[work.end is not None] += 1

    monkeypatch.setattr(Queues, "add", counted)
    for program in PROGRAMS:
        run(program, {}, False)
    assert min(counts.values()) > 100
