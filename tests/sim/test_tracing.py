"""A trace: complete, the same every time, and it adds up."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
from torch import nn

import dpkit
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS, find
from tests.networks import lenet, lenet_params

DEVICES = dpkit.devices(3, "sim")
LOSS = nn.CrossEntropyLoss(reduction="none")


def step(num_devices=2):
    """Trace one training step of LeNet on some devices."""
    devices = DEVICES[:num_devices]
    X, y = torch.ones(30, 1, 28, 28), torch.arange(30) % 10
    torch.manual_seed(0)
    params = dpkit.replicate(lenet_params(), devices)
    dpkit.train_batch(lenet, LOSS, X, y, params, devices, lr=0.1)
    dpkit.synchronize(devices)
    with dpkit.sim.trace() as timeline:
        dpkit.train_batch(lenet, LOSS, X, y, params, devices, lr=0.1)
        dpkit.synchronize(devices)
    return timeline


@pytest.mark.parametrize("hosts", ["one", "per_device"])
def test_two_runs_give_the_identical_timeline(hosts):
    with dpkit.sim.machine(hosts=hosts):
        first, second = step(), step()
    assert first.spans == second.spans
    assert first.blocks == second.blocks
    assert len(first.spans) > 200


def test_spans_of_a_stream_do_not_overlap():
    streams = defaultdict(list)
    for span in step(3).spans:
        assert span.start <= span.end
        streams[span.device, span.stream].append(span)
    assert {key[0] for key in streams} == {"host", *map(str, DEVICES)}
    for spans in streams.values():
        for one, next_one in pairwise(spans):
            assert one.end <= next_one.start + 1e-12


def test_bytes_sent_are_bytes_received():
    copies = [s for s in step(3).spans if s.kind == "copy"]
    sent, received = (
        sum(s.num_bytes for s in copies if s.name.startswith(prefix))
        for prefix in ("copy to sim", "copy from sim")
    )
    size = sum(p.numel() for p in lenet_params()) * 4
    assert sent == received == 2 * 2 * size  # a star of three: in and out


def test_memory_returns_to_where_it_was():
    timeline = step()
    born = [b for b in timeline.blocks if b.allocated >= 0]
    gone = [b for b in timeline.blocks if b.freed is not None]
    # gradients that the step leaves take the place of the last step's
    assert sum(b.num_bytes for b in born) == sum(b.num_bytes for b in gone)


def test_phases_of_a_step():
    """A product in forward, two in backward, and an update in neither."""
    x = torch.ones(2, 3, device="sim:0", requires_grad=True)
    w = torch.ones(3, 4, device="sim:0", requires_grad=True)
    with dpkit.sim.trace() as timeline:
        (x @ w).sum().backward()
        torch.zeros(2, device="sim:0")
        w.grad /= 2
        with torch.no_grad():
            w -= w.grad
    phases = [
        (span.name, span.phase)
        for span in timeline.spans
        if span.device == "sim:0" and span.kind == "compute"
    ]
    assert phases == [
        ("mm", "forward"),
        ("sum", "forward"),
        ("ones_like", "forward"),
        ("mm", "backward"),
        ("mm", "backward"),
        ("zeros", ""),
        ("div_", ""),
        ("sub_", ""),
    ]
    launched = [s.phase for s in timeline.spans if s.kind == "launch"]
    assert set(launched) == {""}


def test_the_host_waits_and_launches_without_a_gap():
    host = [
        s for s in step().spans if s.device == "host" and s.stream == "python"
    ]
    threads = [s for s in step().spans if s.stream.startswith("backward")]
    assert threads
    assert sum(s.end - s.start for s in host) <= step().makespan


def test_the_summary_adds_up():
    timeline = step(3)
    for row in timeline.summary().devices.values():
        total = row.busy + row.exposed + row.idle
        assert total == pytest.approx(timeline.makespan, abs=1e-12)


def faster(preset, factor):
    """Return a preset with rates multiplied and costs divided by a factor."""
    changes = {}
    for name in (f.name for f in fields(preset)):
        value = getattr(preset, name)
        if name.endswith("_seconds"):
            changes[name] = value / factor
        elif name.endswith("_per_second") and isinstance(value, Mapping):
            changes[name] = {k: factor * x for k, x in value.items()}
        elif name.endswith("_per_second"):
            changes[name] = factor * value
        elif name == "host_link":
            changes[name] = faster(find(LINKS, value), factor)
    return replace(preset, **changes)


@pytest.mark.parametrize(
    "names", [("v100-pcie", "pcie3"), ("v100", "nvlink2")]
)
def test_faster_hardware_is_faster_by_as_much(names):
    """All rates and fixed costs times c: the time is divided by c."""

    def seconds(factor):
        changed = {
            "accelerator": faster(ACCELERATORS[names[0]], factor),
            "link": faster(LINKS[names[1]], factor),
            "host": faster(HOSTS["eager"], factor),
        }
        with dpkit.sim.machine(**changed, slow={1: 1.5}):
            return step().makespan

    assert seconds(4.0) == pytest.approx(seconds(1.0) / 4, rel=1e-6)


def test_categories_of_memory():
    """What a step of Adam holds, by what it is for."""
    device = DEVICES[0]
    net = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 10))
    net.to(device)
    X = torch.ones(50, 30, device=device)
    with dpkit.sim.trace() as timeline:
        optimizer = torch.optim.Adam(net.parameters())
        loss = net(X).sum()
        loss.backward()
        optimizer.step()
    size = 4 * (30 * 20 + 20 + 20 * 10 + 10)
    alive = defaultdict(int)
    for block in timeline.blocks:
        if block.freed is None and block.device == str(device):
            alive[block.category] += block.num_bytes
    assert alive["parameters"] == alive["gradients"] == size
    assert alive["optimizer state"] == 2 * size
    saved = [b for b in timeline.blocks if b.category == "activations"]
    # both linear layers' results, the ReLU's, and the loss
    assert sum(b.num_bytes for b in saved) == 4 * (50 * (20 + 20 + 10) + 1)


def test_a_trace_begins_with_what_is_alive():
    x = torch.ones(70, device=DEVICES[2])
    with dpkit.sim.trace() as timeline:
        y = x + 1
    (block,) = [b for b in timeline.blocks if b.num_bytes == 280][:1]
    assert block.allocated == -1
    assert block.freed is None
    del y


def test_what_dies_at_the_end_of_a_trace_has_died_in_it():
    """Nothing is issued after it that would take note of it."""
    with dpkit.sim.trace() as timeline:
        x = torch.ones(11, device="sim:0")
        y = torch.ones(13, device="sim:0")
        del x
    freed = {b.num_bytes: b.freed for b in timeline.blocks}
    assert freed[44] is not None
    assert freed[52] is None
    del y


def test_what_dies_before_a_trace_is_not_in_it():
    x = torch.ones(11, device="sim:0")
    del x
    with dpkit.sim.trace() as timeline:
        y = torch.ones(13, device="sim:0")
    assert 44 not in {b.num_bytes for b in timeline.blocks}
    del y


def test_traces_do_not_nest_and_keep_their_machine():
    with dpkit.sim.trace():
        with pytest.raises(RuntimeError, match="running"), dpkit.sim.trace():
            pass
        with pytest.raises(RuntimeError, match="trace is running"):
            dpkit.sim.configure()
    with dpkit.sim.trace() as timeline:
        pass
    assert timeline.spans == []


def test_a_trace_ends_with_an_error_too():
    with pytest.raises(IndexError), dpkit.sim.trace() as timeline:
        torch.ones(3, device=DEVICES[0])[5]
    assert len(timeline.spans) == 2
    with dpkit.sim.trace():
        pass


def test_the_timeline_names_its_hardware_and_its_assumptions():
    with dpkit.sim.machine(accelerator="a100", link="pcie4"):
        timeline = step()
    assert timeline.label == "simulated (a100, pcie4)"
    assert any("share one path" in line for line in timeline.assumptions)
    assert any("One process" in line for line in timeline.assumptions)
