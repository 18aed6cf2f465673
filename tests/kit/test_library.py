"""Tests of a library's collectives: one kernel on each device."""

from dataclasses import replace

import pytest
import torch

import dpkit
from dpkit import library
from dpkit.plans.library_costs import (
    TRIPS,
    library_seconds,
    passes_a_port,
)
from dpkit.plans.rings import ring
from dpkit.sim.hardware import HOSTS, LINKS, Link
from dpkit.sim.hardware.clusters import cluster
from dpkit.sim.hardware.costs import copy_seconds
from dpkit.traffic import sent

# 1 µs a step, 1 GB/s; and a network of 10 µs and 0.1 GB/s for each device.
INSIDE = Link(
    "in",
    bytes_per_second=1e9,
    achieved=1.0,
    latency_seconds=0.0,
    peer_to_peer=True,
    library_step_seconds=1e-6,
    library_share=1.0,
)
ACROSS = Link(
    "out",
    bytes_per_second=1e8,
    achieved=1.0,
    latency_seconds=0.0,
    peer_to_peer=True,
    library_step_seconds=1e-5,
    library_share=1.0,
)
ONE_NODE = cluster(8, link=INSIDE)
TWO_NODES = cluster(8, link=INSIDE, ranks_per_node=4, network=ACROSS)
MICRO = 1e-6


def micros(operation, p, n, machine=ONE_NODE):
    devices = range(p) if isinstance(p, int) else p
    return library_seconds(operation, devices, n, machine) / MICRO


# -- the closed form, by hand


def test_small_messages_cost_steps():
    """4 devices: 2 · 3 steps of 1 µs, and 4 · 1.5 · 8 bytes at 1 GB/s."""
    assert micros("allreduce", 4, 8) == pytest.approx(6.6 + 6 + 0.048)
    assert micros("allgather", 4, 8) == pytest.approx(6.6 + 3 + 0.024)
    assert micros("broadcast", 4, 8) == pytest.approx(6.6 + 3 + 0.032)


def test_large_messages_cost_bytes():
    """1.5 MB pass a port at 1 GB/s; the steps take 2.5 times as long."""
    assert micros("allreduce", 4, 1e6) == pytest.approx(6.6 + 15 + 1500)
    assert micros("reduce_scatter", 4, 1e6) == pytest.approx(6.6 + 7.5 + 750)
    assert micros("reduce", 4, 1e6) == pytest.approx(6.6 + 7.5 + 1000)


def test_one_device_needs_no_library():
    assert {micros(name, 1, 1e6) for name in TRIPS} == {0}


def test_two_nodes():
    """8 devices: 14 steps, 4 of them across; four ports carry 0.4 GB/s."""
    steps = 10 * 1 + 4 * 10
    assert micros("allreduce", 8, 0, TWO_NODES) == pytest.approx(6.6 + steps)
    expected = 6.6 + 2.5 * steps + 1.75e6 / 4e8 / MICRO
    assert micros("allreduce", 8, 1e6, TWO_NODES) == pytest.approx(expected)


def test_one_device_on_each_node():
    """4 nodes of 1: all 6 steps go across, by one port."""
    far = cluster(4, link=INSIDE, ranks_per_node=1, network=ACROSS)
    assert micros("allreduce", 4, 0, far) == pytest.approx(6.6 + 60)
    expected = 6.6 + 2.5 * 60 + 15000
    assert micros("allreduce", 4, 1e6, far) == pytest.approx(expected)


def test_a_link_that_nothing_passes():
    """Each node has one device: what joins those of a node does not matter."""
    far = cluster(4, link=ACROSS, ranks_per_node=1, network=INSIDE)
    found = micros("allreduce", 4, 1e6, far)
    assert found == pytest.approx(6.6 + 2.5 * 6 + 1500)


def test_devices_that_are_not_the_first():
    """Devices 0 and 4 are on two nodes, 4 to 7 on one."""
    expected = 6.6 + 2.5 * 2 * 10 + 1e6 / 1e8 / MICRO
    found = micros("allreduce", [0, 4], 1e6, TWO_NODES)
    assert found == pytest.approx(expected)
    found = micros("allreduce", [4, 5, 6, 7], 1e6, TWO_NODES)
    assert found == micros("allreduce", 4, 1e6)


def test_a_node_alone_needs_no_network():
    found = micros("allreduce", 4, 1e6, TWO_NODES)
    assert found == micros("allreduce", 4, 1e6)


def test_without_peer_to_peer_all_share_one_path():
    shared = cluster(8, link=replace(INSIDE, peer_to_peer=False))
    expected = 6.6 + 15 + 4 * 1500
    assert micros("allreduce", 4, 1e6, shared) == pytest.approx(expected)


def test_an_unknown_operation():
    with pytest.raises(ValueError, match=r"unknown operation .*'scan'"):
        micros("scan", 4, 8)


# -- against measurements


# NVIDIA/nccl-tests, issue 123: a DGX A100, 8 to 128 bytes, in microseconds.
BY_DEVICES = {2: 10, 3: 13.76, 4: 16.88, 5: 20.8, 6: 25.2, 7: 29.5, 8: 33.7}


@pytest.mark.parametrize("p", BY_DEVICES)
def test_latency_grows_with_the_devices(p):
    a100s = cluster(8, "a100", "nvlink3")
    found = micros("allreduce", p, 8, a100s)
    assert found == pytest.approx(BY_DEVICES[p], rel=0.15)


# NVIDIA/nccl-tests, issue 119: 3 servers of 8 A100, 4 ports of 200 Gbit/s.
@pytest.mark.parametrize(
    ("n", "seconds"), [(33554440, 732.9e-6), (133169160, 2660.4e-6)]
)
def test_three_servers_on_infiniband(n, seconds):
    half = replace(LINKS["infiniband200"], bytes_per_second=12.5e9)
    machine = cluster(24, "a100", "nvlink3", ranks_per_node=8, network=half)
    found = library_seconds("allreduce", range(24), n, machine)
    assert found == pytest.approx(seconds, rel=0.35)


# -- on simulated devices


def run(operation, p=8, n=1000, **machine):
    """Run an operation without numbers; return its timeline and seconds."""
    act = getattr(dpkit, operation)
    with dpkit.sim.machine(backing="meta", **machine):
        devices = dpkit.devices(p, "sim")
        tensors = [torch.empty(n, device=d) for d in devices]
        dpkit.synchronize(devices)
        with dpkit.sim.trace() as timeline:
            act(tensors, algorithm="library")
            dpkit.synchronize(devices)
    return timeline


@pytest.mark.parametrize("operation", TRIPS)
def test_one_kernel_on_each_device_charged_by_the_closed_form(operation):
    timeline = run(operation, link=INSIDE, hosts="per_device")
    spans = [s for s in timeline.spans if s.kind not in ("launch", "wait")]
    assert [s.device for s in spans] == [f"sim:{r}" for r in range(8)]
    seconds = library_seconds(operation, range(8), 4000, ONE_NODE)
    moved = round(passes_a_port(operation, 8, 4000))
    for span in spans:
        assert (span.name, span.num_bytes) == (operation, moved)
        assert span.start == spans[0].start
        assert span.end - span.start == pytest.approx(seconds)
    launched = [s for s in timeline.spans if s.name == operation]
    assert sum(s.kind == "launch" for s in launched) == 8
    assert all(
        (d.bytes_sent, d.bytes_received) == (moved, moved)
        for d in timeline.summary().devices.values()
    )


def test_one_host_launches_for_each_device():
    timeline = run("allreduce", hosts="one")
    launches = [s for s in timeline.spans if s.kind == "launch"]
    assert [s.name for s in launches].count("allreduce") == 8
    kernel = next(s for s in timeline.spans if s.kind == "copy")
    assert kernel.start == max(s.end for s in launches)


@pytest.mark.parametrize("hosts", ["one", "per_device"])
def test_the_host_of_each_device_pays_for_one_launch(hosts):
    launches = [
        s.end - s.start
        for s in run("allreduce", hosts=hosts).spans
        if (s.kind, s.name) == ("launch", "allreduce")
    ]
    assert launches == pytest.approx([HOSTS["eager"].launch_seconds] * 8)


def test_it_waits_for_the_last_device():
    with dpkit.sim.machine(link=INSIDE, backing="meta"):
        zero, one = dpkit.devices(2, "sim")
        tensors = [torch.empty(1000, device=d) for d in (zero, one)]
        work = torch.empty(4000, 4000, device=one)
        with dpkit.sim.trace() as timeline:
            work @ work
            dpkit.allreduce(tensors, algorithm="library")
    spans = {s.name: s for s in timeline.spans if s.kind != "launch"}
    assert spans["allreduce"].start >= spans["mm"].end


def allreduce_and_copy(target):
    """Return the spans of both; the copy goes from device 0, beside it."""
    nodes = {"ranks_per_node": 2, "network": ACROSS}
    with dpkit.sim.machine(link=INSIDE, backing="meta", **nodes):
        devices = dpkit.devices(4, "sim")
        tensors = [torch.empty(10**6, device=d) for d in devices]
        streams = [torch.sim.Stream(devices[r]) for r in (0, target)]
        with dpkit.sim.trace() as timeline:
            dpkit.allreduce(tensors, algorithm="library")
            with torch.sim.stream(streams[0]), torch.sim.stream(streams[1]):
                tensors[0].to(devices[target], non_blocking=True)
    spans = {s.name: s for s in timeline.spans if s.kind == "copy"}
    return spans["allreduce"], spans[f"copy to sim:{target}"]


def test_a_copy_to_another_node_waits_for_its_ports():
    """The network sets the rate of the allreduce, which takes all of it."""
    allreduce, copy = allreduce_and_copy(target=3)
    assert copy.start >= allreduce.end > 5e-3


def test_a_copy_inside_a_node_goes_at_the_rate_that_is_left():
    """The allreduce is slowed by the network, and leaves room inside."""
    allreduce, copy = allreduce_and_copy(target=1)
    assert copy.end < allreduce.end
    rate = INSIDE.bytes_per_second * INSIDE.achieved
    taken = allreduce.num_bytes / (allreduce.end - allreduce.start) / rate
    assert 0.01 < taken < 0.5
    alone = copy_seconds(INSIDE, 4_000_000)
    assert copy.end - copy.start == pytest.approx(alone / (1 - taken))


def test_inside_one_node_a_copy_waits_for_its_ports():
    with dpkit.sim.machine(link=INSIDE, backing="meta"):
        devices = dpkit.devices(4, "sim")
        tensors = [torch.empty(10**6, device=d) for d in devices]
        streams = [torch.sim.Stream(d) for d in devices[:2]]
        with dpkit.sim.trace() as timeline:
            dpkit.allreduce(tensors, algorithm="library")
            with torch.sim.stream(streams[0]), torch.sim.stream(streams[1]):
                tensors[0].to(devices[1], non_blocking=True)
    spans = {s.name: s for s in timeline.spans if s.kind == "copy"}
    assert spans["copy to sim:1"].start >= spans["allreduce"].end


def test_the_numbers_take_no_memory_of_the_device():
    tensors = [torch.ones(1000, device=d) for d in dpkit.devices(3, "sim")]
    before = torch.sim.memory_allocated(0)
    torch.sim.reset_peak_memory_stats(0)
    dpkit.allreduce(tensors, algorithm="library")
    assert torch.sim.max_memory_allocated(0) == before
    assert tensors[0][0] == 3


def test_no_copy_is_counted():
    tensors = [torch.ones(1000, device=d) for d in dpkit.devices(3, "sim")]
    work = lambda: dpkit.allreduce(tensors, algorithm="library")  # noqa: E731
    assert sent(work) == (0, 0)


def test_autograd_sees_what_was_changed():
    xs = [torch.ones(3, device=d) for d in dpkit.devices(2, "sim")]
    for act, root_changes in ((dpkit.broadcast, False), (dpkit.reduce, True)):
        ys = [x.clone().requires_grad_() * 1 for x in xs]
        losses = [(y * y).sum() for y in ys]
        act(ys, algorithm="library")
        kept, changed = losses if not root_changes else losses[::-1]
        kept.backward()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            changed.backward()


def test_in_inference_mode():
    with torch.inference_mode():
        xs = [torch.ones(3, device=d) for d in dpkit.devices(2, "sim")]
        dpkit.allreduce(xs, algorithm="library")
    assert xs[1].tolist() == [2, 2, 2]


def test_tensors_of_another_machine_are_refused():
    xs = [torch.ones(3, device=d) for d in dpkit.devices(2, "sim")]
    words = pytest.raises(RuntimeError, match="of another simulated machine")
    with dpkit.sim.machine(backing="meta"), words:
        library.perform(library.LIBRARY, "allreduce", ring(2), xs)


def test_nodes_are_those_of_the_machine(get_ranks):
    tensors = [torch.ones(3, device=d) for d in get_ranks(4)]
    with pytest.raises(ValueError, match="only the hierarchical"):
        dpkit.allreduce(tensors, algorithm="library", ranks_per_node=2)


# -- on GPUs: a stand-in for NCCL, and CPU tensors that claim to be there


class OnGpu:
    """What is asked of a tensor before NCCL is called."""

    def __init__(self, rank, n=6, dtype=torch.float32):
        self.device = torch.device("cuda", rank)
        self.whole, self.rank, self.n = self, rank, n
        self.dtype = dtype

    def __len__(self):
        return self.n

    def __getitem__(self, part):
        return self  # a view of all of it

    def is_complex(self):
        return self.dtype.is_complex

    def chunk(self, count):
        return [(self.rank, part, self.n // count) for part in range(count)]


@pytest.fixture
def calls(monkeypatch):
    """Record the calls to NCCL, and those to the plan's runner."""
    made = []

    def record(name):
        return lambda *args, **kwargs: made.append((name, args, kwargs))

    for name in ("all_reduce", "reduce_scatter", "all_gather"):
        monkeypatch.setattr(library.nccl, name, record(name))
    for name in ("broadcast", "reduce"):
        monkeypatch.setattr(library.nccl, name, record(name))
    monkeypatch.setattr(library, "run_in_pieces", record("plan"))
    monkeypatch.setattr(library, "_mark_changed", lambda plan, flats: None)
    return made


def test_what_nccl_is_asked_for(calls):
    flats = [OnGpu(0), OnGpu(1)]
    parts = [(0, 0, 3), (1, 1, 3)]
    for operation, op in zip(TRIPS, ("mean", "max", "sum", "sum", "min")):
        library.perform(
            library.LIBRARY, operation, ring(2), flats, op=op, root=1
        )
    assert calls == [
        ("all_reduce", (flats,), {"op": 0}),
        ("reduce_scatter", (flats, parts), {"op": 2}),
        ("all_gather", (parts, flats), {}),
        ("broadcast", (flats, 1), {}),
        ("reduce", (flats,), {"root": 1, "op": 3}),
    ]


@pytest.mark.parametrize(
    ("operation", "flats"),
    [
        ("allgather", [OnGpu(0, 7), OnGpu(1, 7)]),
        ("reduce_scatter", [OnGpu(0, 7), OnGpu(1, 7)]),
        ("allreduce", [OnGpu(r, 6, torch.complex64) for r in (0, 1)]),
        ("allreduce", [OnGpu(r, 6, torch.int16) for r in (0, 1)]),
        ("allreduce", [OnGpu(0), OnGpu(0)]),
        ("allreduce", [OnGpu(0)]),
    ],
)
def test_what_nccl_does_not_take_goes_by_messages(calls, operation, flats):
    library.perform(library.LIBRARY, operation, ring(len(flats)), flats)
    assert [name for name, _, _ in calls] == ["plan"]


def test_the_names_of_the_ops_are_ncclredop(calls):
    """ncclSum 0, ncclProd 1, ncclMax 2, ncclMin 3, in nccl.h."""
    assert library.NCCL_OPS == {
        "sum": 0,
        "mean": 0,
        "product": 1,
        "max": 2,
        "min": 3,
    }
    assert library.nccl.SUM == 0
