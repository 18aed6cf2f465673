"""Ranks as threads: what they send, when it arrives, what each has alone."""

import os
import random
import threading
from contextvars import copy_context

import numpy
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.modules import module
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.processes import rank_device
from dpkit.sim.hardware import HOSTS
from tests.runs import functional_calls_on_ranks, more_calls_on_ranks
from tests.runs.calls_on_ranks import CALLS, GROUP, Rank, call_in_groups

ADDED = functional_calls_on_ranks, more_calls_on_ranks
MOST = max(5, *map(int, os.environ.get("DPKIT_RANKS", "2 4").split()))
LARGE = 1_000_000


def here(kind="sim"):
    rank, k = dist.get_rank(), dist.get_world_size()
    device = torch.device("sim", rank) if kind == "sim" else torch.device(kind)
    return Rank(rank, k, device)


def leave(name, kind):
    """Make a call; return what it leaves on this rank."""
    outs = CALLS[name][0](here(kind))
    assert all(out.device == here(kind).device for out in outs)
    return [out.detach().cpu() for out in outs]


def traced(program, k, *args, **settings):
    with dpkit.sim.machine(hosts="per_device"), dpkit.sim.trace() as timeline:
        values = dpkit.sim.launch(program, k, *args, **settings)
    return values, timeline.spans


# -- values


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_what_it_should(name):
    """On simulated devices and on the CPU, both ways to send."""
    _, expected, least = CALLS[name]
    for k in range(least, MOST + 1):
        for kind, way in ("sim", None), ("sim", "library"), ("cpu", None):
            found = dpkit.sim.launch(leave, k, name, kind, algorithm=way)
            for rank, outs in enumerate(found):
                torch.testing.assert_close(
                    outs, expected(rank, k), rtol=1e-12, atol=1e-12
                )


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
@pytest.mark.parametrize("name", [n for n in CALLS if n != "new_group"])
def test_a_call_in_a_group_leaves_what_its_ranks_have(name):
    """Each group has numbers of its own, and no rank's number is its place."""
    for kind, way in ("sim", None), ("sim", "library"), ("cpu", None):
        ranks = dpkit.sim.launch(call_in_groups, 5, name, kind, algorithm=way)
        for rank, left in enumerate(ranks):
            outs = [out.detach().cpu() for out in left]
            size = 3 if rank % 2 == 0 else 2
            expected = copy_context().run(
                expected_in_group, 1 + rank % 2, name, rank // 2, size
            )
            torch.testing.assert_close(outs, expected, rtol=1e-12, atol=1e-12)


def expected_in_group(number, name, place, size):
    """Return what a call leaves on a rank of a group, by the group's numbers.

    Run it in a context of its own: it sets the group.
    """
    GROUP.set(number)
    return CALLS[name][1](place, size)


def objects():
    rank, device = dist.get_rank(), here().device
    gathered, own, one = [None] * 3, [rank], [None]
    dist.all_gather_object(gathered, {"rank": rank})
    dist.broadcast_object_list(own, 1, device=device)
    dist.scatter_object_list(one, ["a", 2, None] if rank == 0 else None, 0)
    if rank == 0:
        dist.send_object_list([5], 2)
    if rank == 2:
        dist.recv_object_list(own, 0)
    return [each["rank"] for each in gathered], own, one


def test_objects():
    assert dpkit.sim.launch(objects, 3) == [
        ([0, 1, 2], [1], ["a"]),
        ([0, 1, 2], [1], [2]),
        ([0, 1, 2], [5], [None]),
    ]


# -- time


@pytest.mark.parametrize("way", [None, "library"])
@pytest.mark.parametrize("name", ["all_reduce sum", "batch_isend_irecv"])
def test_two_runs_take_the_same_time(name, way):
    runs = [traced(leave, 3, name, "sim", algorithm=way) for _ in range(2)]
    assert runs[0][1] == runs[1][1]


def send_large(what):
    here_, k = here(), dist.get_world_size()
    x = torch.ones(LARGE * k, device="sim")
    part = torch.ones(LARGE, device="sim")
    begin = dpkit.sim.now(here_.device)
    match what:
        case "all_reduce":
            dist.all_reduce(part)
        case "broadcast":
            dist.broadcast(part, 1)
        case "reduce":
            dist.reduce(part, 1)
        case "all_gather":
            dist.all_gather_into_tensor(x, part)
        case "reduce_scatter":
            dist.reduce_scatter_tensor(part, x)
        case "all_to_all":
            dist.all_to_all_single(x.clone(), x)
        case "gather":
            outs = list(x.split(LARGE)) if here_.rank == 0 else None
            dist.gather(part, outs, 0)
        case "scatter":
            given = list(x.split(LARGE)) if here_.rank == 0 else None
            dist.scatter(part, given, 0)
    torch.sim.synchronize()
    return dpkit.sim.now(here_.device) - begin


# What leaves all ports together, in parts of LARGE numbers.
SENT = {
    "all_reduce": lambda k: 2 * (k - 1),
    "broadcast": lambda k: k - 1,
    "reduce": lambda k: k - 1,
    "all_gather": lambda k: k * (k - 1),
    "reduce_scatter": lambda k: k * (k - 1),
    "all_to_all": lambda k: k * (k - 1),
    "gather": lambda k: k - 1,
    "scatter": lambda k: k - 1,
}


@pytest.mark.parametrize("what", SENT)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_bytes_that_leave_ports(what, k):
    _, spans = traced(send_large, k, what)
    sent = sum(s.num_bytes for s in spans if "copy to" in s.name)
    assert sent == 4 * LARGE * SENT[what](k)


@pytest.mark.parametrize("way", [None, "library"])
@pytest.mark.parametrize("what", SENT)
def test_nothing_is_free(what, way):
    """The last rank is done when a port could have sent it all, or later."""
    with dpkit.sim.machine(num_devices=3, hosts="per_device"):
        seconds = max(dpkit.sim.launch(send_large, 3, what, algorithm=way))
    whole_rate = 150e9  # bytes a second: what an nvlink2 has at most
    assert seconds > 4 * LARGE * SENT[what](3) / 3 / whole_rate


def test_a_library_launches_once():
    """And a ring by hand for every message."""
    for way, at_least, at_most in ("library", 1, 1), ("ring", 8, 99):
        _, spans = traced(send_large, 3, "all_reduce", algorithm=way)
        own = [s for s in spans if s.device == "sim:0" and s.kind == "copy"]
        assert at_least <= len(own) <= at_most


def overlap(wait_first):
    x, y = torch.ones(LARGE, device="sim"), torch.ones(500, 500, device="sim")
    work = dist.all_reduce(x, async_op=True)
    if wait_first:
        work.wait()
    for _ in range(30):
        y = y @ y
    work.wait()


def beside(spans):
    """Return how many copies run while their device multiplies."""
    products = [s for s in spans if s.name == "mm"]
    copies = [s for s in spans if s.kind == "copy"]
    return sum(
        any(
            p.device == c.device and p.start < c.end and c.start < p.end
            for p in products
        )
        for c in copies
    )


@pytest.mark.parametrize("way", [None, "library"])
def test_who_does_not_wait_computes_beside(way):
    _, spans = traced(overlap, 3, False, algorithm=way)
    _, in_turn = traced(overlap, 3, True, algorithm=way)
    assert beside(spans) > 0 == beside(in_turn)
    assert max(s.end for s in spans) < max(s.end for s in in_turn)


def steps_of_ddp(bucket_megabytes):
    """Take two steps of PyTorch's DDP, which has one bucket in the first."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(500, 500) for _ in range(6)]
    net = torch.nn.Sequential(*layers).to("sim")
    ddp = DistributedDataParallel(net, bucket_cap_mb=bucket_megabytes)
    for _ in range(2):
        ddp(torch.ones(2000, 500, device="sim")).sum().backward()


def test_ddp_sends_gradients_beside_backward():
    """The stream waits for the sums at the end, not for each when it goes."""
    _, spans = traced(steps_of_ddp, 2, 1)
    _, in_turn = traced(steps_of_ddp, 2, 1000)  # one bucket
    assert beside(spans) > 0 == beside(in_turn)


def send_from_the_cpu():
    begin = dpkit.sim.now(here().device)
    x = torch.ones(LARGE)
    dist.all_reduce(x)
    dist.all_gather([x.clone() for _ in range(dist.get_world_size())], x)
    return dpkit.sim.now(here().device) - begin


def test_what_lies_on_the_cpu_costs_nothing():
    assert dpkit.sim.launch(send_from_the_cpu, 3) == [0, 0, 0]


def compute_unequally():
    x = torch.ones(500, 500, device="sim")
    for _ in range(10 * (1 + dist.get_rank())):
        x = x @ x


def test_the_time_of_a_launch_passes_for_the_caller():
    """With one host as with many, and until the last device is done."""
    seconds = {}
    for hosts in "one", "per_device":
        with dpkit.sim.machine(hosts=hosts):
            every = dpkit.devices(3, "sim")
            for count in 1, 3:
                with dpkit.Timer(every) as timer:
                    dpkit.sim.launch(compute_unequally, count)
                seconds[hosts, count] = timer.seconds
    assert 2.5 < seconds["one", 3] / seconds["one", 1] < 3.5
    for count in 1, 3:  # one host waits for the devices in turn
        more = seconds["one", count] - seconds["per_device", count]
        assert more == pytest.approx(2 * HOSTS["eager"].wait_seconds)


def copy_to_host():
    """Rank 1 copies in backward and lets rank 0 go on, which copies later."""
    x, small = torch.ones(LARGE, device="sim"), torch.ones(1, device="sim")
    host = torch.empty(LARGE).pin_memory()
    y = torch.ones(3, device="sim", requires_grad=True)

    def copy_and_wait(gradient):
        work = dist.all_reduce(small, async_op=True)
        host.copy_(x, non_blocking=True)
        work.wait()

    dist.barrier()
    if dist.get_rank() == 1:
        z = y * 2
        z.register_hook(copy_and_wait)
        z.sum().backward()
    else:
        for _ in range(2):
            torch.ones(500, 500, device="sim") @ torch.ones(
                500, 500, device="sim"
            )
        host.copy_(x, non_blocking=True)
        torch.sim.synchronize()
        dist.all_reduce(small)


def test_what_backward_has_issued_comes_before_what_is_issued_later():
    """On the path to the host, which both copies need."""
    _, spans = traced(copy_to_host, 2)
    copies = [s for s in spans if (s.name, s.kind) == ("copy to host", "copy")]
    first, second = sorted(copies, key=lambda span: span.start)
    assert (first.device, second.device) == ("sim:1", "sim:0")
    assert second.start == pytest.approx(first.end)


def gather_and_forget():
    """Return how many bytes go with what was sent, while its work is kept."""
    x, out = torch.ones(LARGE, device="sim"), torch.ones(LARGE * 2).to("sim")
    work = dist.all_gather_into_tensor(out, x, async_op=True)
    work.wait()
    before = torch.sim.memory_allocated()
    del x
    return before - torch.sim.memory_allocated()


def test_what_was_sent_is_free_when_it_has_arrived():
    assert dpkit.sim.launch(gather_and_forget, 2) == [4 * LARGE] * 2


def meet():
    if dist.get_rank() == 1:
        torch.ones(500, 500, device="sim") @ torch.ones(500, 500, device="sim")
    dist.barrier()
    return dpkit.sim.now(here().device)


def test_a_barrier_waits_for_the_last():
    """Its host, as the others' are let go on when it has come."""
    times = dpkit.sim.launch(meet, 3)
    assert len(set(times)) == 1
    assert times[0] > 0


# -- what each rank has alone


def draw(seed):
    """Return random numbers of the CPU and the device, drawn in turns."""
    rank = dist.get_rank()
    if seed:
        torch.manual_seed(rank)
    found = []
    for device in ("cpu", "sim"):
        generator = torch.Generator(device).manual_seed(9)
        for settings in {}, {"generator": generator}:
            for _ in range(2):
                found += torch.rand(2, device=device, **settings).tolist()
                dist.barrier()
    return found


def test_each_rank_draws_as_if_alone():
    seeded = dpkit.sim.launch(draw, 3, True)
    assert seeded[0][:4] != seeded[1][:4] != seeded[2][:4]
    assert seeded[0][4:8] == seeded[2][4:8]  # a generator of the same seed
    for rank in range(3):
        torch.manual_seed(rank)
        cpu = [*torch.rand(2), *torch.rand(2)]
        assert seeded[rank][:4] == [float(x) for x in cpu]


def numbers_of_all(seed=None, meet=lambda: None):
    """Draw from each generator; NumPy draws normal numbers in pairs."""
    if seed is not None:
        seed_all_to(seed)
    found = []
    for _ in range(3):
        found += [torch.rand(()).item(), random.random(), numpy.random.randn()]
        meet()
    return found


def seed_all_to(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def in_turns(seed=None):
    return numbers_of_all(seed, dist.barrier)


def by_generator(found):
    """Return the numbers of a rank, those of each generator by themselves."""
    return [tuple(found[i::3]) for i in range(3)]


def test_pythons_and_numpys_generators_change_with_the_turn():
    expected = numbers_of_all(7)
    assert dpkit.sim.launch(in_turns, 3, 7) == [expected] * 3


def test_ranks_without_a_seed_draw_different_numbers():
    """From all three generators, and the same ones as without turns."""
    seed_all_to(3)
    first = dpkit.sim.launch(in_turns, 4)
    for numbers in zip(*map(by_generator, first)):
        assert len(set(numbers)) == 4
    seed_all_to(3)
    assert dpkit.sim.launch(numbers_of_all, 4) == first
    assert dpkit.sim.launch(numbers_of_all, 4) == first  # from the same state
    seed_all_to(4)
    second = dpkit.sim.launch(in_turns, 4)
    for before, now in zip(first, second):
        for old, new in zip(by_generator(before), by_generator(now)):
            assert set(old).isdisjoint(new)


def test_the_random_numbers_of_the_caller_stay():
    expected = numbers_of_all(4)
    seed_all_to(4)
    dpkit.sim.launch(draw, 2, True)
    dpkit.sim.launch(in_turns, 2, 5)
    assert numbers_of_all() == expected


def see_own_modules():
    """Return what a hook of all modules has seen on a rank."""
    seen = []
    layer = torch.nn.Linear(2, 2).to("sim")
    hook = register_module_forward_hook(lambda m, *_: seen.append(m is layer))
    dist.barrier()
    layer(torch.ones(1, 2, device="sim"))
    dist.barrier()
    if dist.get_rank() == 0:
        hook.remove()
    dist.barrier()
    layer(torch.ones(1, 2, device="sim"))
    dist.barrier()
    return seen


def test_hooks_of_all_modules_are_those_of_a_rank():
    calls = []
    hook = register_module_forward_hook(lambda *_: calls.append(1))
    try:
        assert dpkit.sim.launch(see_own_modules, 2) == [[True], [True, True]]
        assert len(calls) == 4  # the caller's is that of each rank, too
        torch.nn.Identity()(0)
        assert len(calls) == 5
    finally:
        hook.remove()
    assert not module._global_forward_hooks


def count_communication():
    layer = torch.nn.Linear(4, 4).to("sim")
    fully_shard(layer)
    with CommDebugMode() as counted:
        layer(torch.ones(2, 4, device="sim")).sum().backward()
    return counted.get_total_counts()


def test_each_rank_may_count_what_it_sends():
    """PyTorch's counter puts hooks on all modules."""
    assert len(dpkit.sim.launch(count_communication, 2)) == 2


def own_things():
    rank = dist.get_rank()
    stream = torch.sim.Stream()
    with torch.sim.stream(stream):
        dist.barrier()
        kept = torch.sim.current_stream() == stream
    found = torch.sim.current_device(), torch.empty(1, device="sim").device
    return rank, kept, *found, threading.current_thread().name


def test_each_rank_has_its_device_its_stream_and_its_thread():
    torch.sim.set_device(3)
    expected = [
        (r, True, r, torch.device("sim", r), f"rank {r}") for r in range(3)
    ]
    assert dpkit.sim.launch(own_things, 3) == expected
    assert torch.sim.current_device() == 3
    torch.sim.set_device(0)


def change(x, kept):
    x += dist.get_rank()
    kept.append(dist.get_rank())
    return x.item(), len(kept)


def test_each_rank_gets_a_copy_of_the_arguments():
    x, kept = torch.zeros(1), []
    assert dpkit.sim.launch(change, 3, x, kept) == [(0, 1), (1, 1), (2, 1)]
    assert (x.item(), kept) == (0, [])


def test_the_groups_of_the_caller_stay():
    before = dist.distributed_c10d._world
    dpkit.sim.launch(objects, 3)
    assert dist.distributed_c10d._world is before
    assert not dist.is_initialized()


# -- refusals


def test_a_trace_needs_a_host_for_each_rank():
    with (
        dpkit.sim.trace(),
        pytest.raises(RuntimeError, match=r'machine\(hosts="per_device"\)'),
    ):
        dpkit.sim.launch(meet, 2)


REFUSED = {
    "ranks are running already": lambda: dpkit.sim.launch(meet, 2),
    "one backend": lambda: dist.new_group(backend="gloo"),
    "not all on its device": lambda: dist.all_reduce(
        torch.ones(2, device=f"sim:{1 - dist.get_rank()}")
    ),
    "hardware cannot change while ranks run": dpkit.sim.configure,
    "cannot change while": lambda: dpkit.sim.machine(link="pcie3").__enter__(),
    r"its own device alone \(rank: 0, device: sim:1\)": lambda: (
        dpkit.synchronize(dpkit.devices(2, "sim"))
    ),
    "own device alone": lambda: dpkit.Timer(["sim:0", "sim:1"]).__enter__(),
    "recv needs a source": lambda: dist.recv(torch.ones(2, device="sim")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_hang_or_be_wrong_is_refused(reason):
    with pytest.raises(RuntimeError, match=reason):
        dpkit.sim.launch(REFUSED[reason], 2)


def test_the_hardware_may_change_again_after_ranks():
    with pytest.raises(RuntimeError, match="ranks run"):
        dpkit.sim.launch(dpkit.sim.configure, 2)
    with dpkit.sim.machine(link="pcie3"):
        assert "pcie3" in dpkit.sim.label()


def test_torch_numbers_no_more_devices_than_these():
    """And so many are there."""
    told = r"not number so many devices \(num_devices: 129, at most: 128\)"
    for change in dpkit.sim.configure, dpkit.sim.machine:
        with pytest.raises(ValueError, match=told):
            change(num_devices=129).__enter__()
    with dpkit.sim.machine(num_devices=128):
        assert dpkit.devices(128, "sim")[-1] == torch.device("sim", 127)


@pytest.mark.parametrize("count", [0, 9, 2.0])
def test_there_are_as_many_devices_as_ranks(count):
    with pytest.raises((ValueError, TypeError), match="world_size"):
        dpkit.sim.launch(meet, count)


def test_a_group_is_for_ranks_only():
    dpkit.sim.register()
    with pytest.raises(RuntimeError, match=r"dpkit\.sim\.launch starts them"):
        dist.init_process_group(
            "sim", store=dist.HashStore(), rank=0, world_size=1
        )


def test_the_device_of_a_rank():
    found = dpkit.sim.launch(rank_device, 2)
    assert found == [torch.device("sim:0"), torch.device("sim:1")]


def sum_of_every_second():
    """Make the group of this rank alone: all groups have one name then."""
    rank = dist.get_rank()
    group = dist.new_group([rank % 2, rank % 2 + 2])
    x = torch.tensor([float(rank)], device="sim")
    dist.all_reduce(x, group=group)
    return x.item()


def test_groups_of_one_name_are_told_apart_by_their_ranks():
    assert dpkit.sim.launch(sum_of_every_second, 4) == [2, 4, 2, 4]
