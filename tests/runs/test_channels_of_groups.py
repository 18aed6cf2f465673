"""Each group of ranks sends on streams of its own, which bear its name."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import dpkit
from dpkit import sim

NODES = {"ranks_per_node": 2, "network": "ethernet25", "hosts": "per_device"}
ALGORITHMS = ["ring", "library"]


def traced(program, algorithm, num_ranks=4, **machine):
    """Run ranks on nodes of two; return their values and the timeline."""
    settings = {"num_devices": num_ranks, **NODES, **machine}
    with sim.machine(backing="meta", **settings), sim.trace() as timeline:
        values = sim.launch(program, num_ranks, algorithm=algorithm)
    return values, timeline


def rows(timeline, device="sim:0"):
    """Return the rows of a device that are not its computing."""
    found = {s.stream for s in timeline.spans if s.device == device}
    return sorted(found - {"compute"})


def empty(num_bytes):
    return torch.empty(num_bytes // 4, device="sim")


def mesh_of(*names):
    sizes = (2,) * len(names)
    return init_device_mesh("sim", sizes, mesh_dim_names=names)


def small_beside_large():
    """Return the milliseconds until a small allreduce is over, and a large."""
    mesh = mesh_of("fsdp", "tp")
    slow, fast = (mesh[name].get_group() for name in ("fsdp", "tp"))
    large, small = empty(40_000_000), empty(4000)
    torch.sim.synchronize()
    begin = sim.now()
    first = dist.all_reduce(large, group=slow, async_op=True)
    second = dist.all_reduce(small, group=fast, async_op=True)
    marks = []
    for work in (second, first):
        work.wait()
        torch.sim.current_stream().synchronize()
        marks.append(1e3 * (sim.now() - begin))
    return marks


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_slow_group_holds_up_no_other(algorithm):
    """Two groups of each rank: one of both nodes, one inside a node."""
    found, timeline = traced(small_beside_large, algorithm)
    assert all(small < 0.1 and large > 10 for small, large in found)
    assert {"fsdp", "tp"} <= set(rows(timeline))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_group_sends_is_sent_in_turn(algorithm):
    """The same two sizes in one group: the second waits for the first."""

    def in_one_group():
        large, small = empty(40_000_000), empty(4000)
        dist.all_reduce(large, async_op=True)
        dist.all_reduce(small, async_op=True).wait()
        torch.sim.current_stream().synchronize()
        return sim.now()

    found, _ = traced(in_one_group, algorithm)
    assert min(found) > 10e-3


def names_of_groups():
    x = empty(400)
    mesh = mesh_of("pp", "tp")
    dist.all_reduce(x)
    dist.all_reduce(x, group=mesh["tp"].get_group())
    dist.all_reduce(x, group=mesh_of("tp", "ep")["tp"].get_group())
    dist.all_reduce(x, group=dist.new_group([0, 1, 2, 3]))
    for group in (None, mesh["pp"].get_group()):
        if dist.get_rank() == 0:
            dist.send(x, 2, group=group)
        elif dist.get_rank() == 2:
            dist.recv(x, 0, group=group, tag=0)


def test_rows_have_the_name_of_their_group():
    """Also where two meshes have a dimension of one name."""
    _, timeline = traced(names_of_groups, "library")
    *known, made = sorted(rows(timeline), key=lambda row: row[:5] == "group")
    assert known == ["pp 0 → 2", "tp", "tp 2", "world", "world 0 → 2"]
    assert made.removeprefix("group ").isalnum()


def test_rows_of_a_ring_say_what_they_do(tmp_path):
    _, timeline = traced(small_beside_large, "ring")
    each = ["", ", receives", ", sends"]
    assert rows(timeline) == [f"{n}{e}" for n in ("fsdp", "tp") for e in each]
    timeline.to_svg(tmp_path / "rows.svg")
    picture = (tmp_path / "rows.svg").read_text()
    assert ">fsdp, sends<" in picture
    assert ">tp, receives<" in picture


def scatter(x):
    dist.reduce_scatter_tensor(x.chunk(2)[0].clone(), x)


def coalesced(collective):
    """Return when a stream goes on that waits for two, joined in one."""
    small, large = empty(1_000_000), empty(100_000_000)
    torch.sim.synchronize()
    begin = sim.now()
    manager = dist._coalescing_manager(device=small.device, async_ops=True)
    with manager as together:
        collective(small)
        collective(large)
    together.wait()
    torch.sim.current_stream().synchronize()
    return sim.now() - begin


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("collective", [dist.all_reduce, scatter])
def test_coalesced_collectives_wait_for_the_last(collective, algorithm):
    """100 MB on a link of 10 GB/s and less take more than 10 ms.

    Two sums are one operation of the group; two sums of parts are two, whose
    work has to wait for both.
    """
    program = partial(coalesced, collective)
    found, timeline = traced(program, algorithm, num_ranks=2)
    copies = [s for s in timeline.spans if s.kind == "copy"]
    last = max(s.end for s in copies)
    begin = min(s.start for s in copies)
    assert min(found) >= last - begin > 1e-4


def several_messages():
    """Return when a rank goes on that has received two, in one batch."""
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    small, large = empty(1000), empty(100_000_000)
    act = dist.isend if rank == 0 else dist.irecv
    torch.sim.synchronize()
    begin = sim.now()
    for work in dist.batch_isend_irecv(
        [dist.P2POp(act, x, other) for x in (small, large)]
    ):
        work.wait()
    torch.sim.current_stream().synchronize()
    return sim.now() - begin


def test_a_batch_of_messages_waits_for_the_last():
    found, timeline = traced(several_messages, "library", num_ranks=2)
    copies = [s for s in timeline.spans if s.kind == "copy"]
    assert min(found) >= max(s.end - s.start for s in copies) > 1e-4


def from_two_ranks():
    """Return when rank 0 goes on, which receives two messages in a batch."""
    rank = dist.get_rank()
    sizes = {1: 100_000_000, 2: 1000}
    if rank == 0:
        messages = [
            dist.P2POp(dist.irecv, empty(size), source)
            for source, size in sizes.items()
        ]
    else:
        messages = [dist.P2POp(dist.isend, empty(sizes[rank]), 0)]
    torch.sim.synchronize()
    begin = sim.now()
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    torch.sim.current_stream().synchronize()
    return sim.now() - begin


def test_a_batch_of_messages_waits_for_each_rank():
    """Each pair has its own streams, and the last message is the small one."""
    found, timeline = traced(from_two_ranks, "library", num_ranks=3)
    copies = [s for s in timeline.spans if s.kind == "copy"]
    assert found[0] >= max(s.end - s.start for s in copies) > 1e-4


def test_a_collective_of_a_library_is_one_launch():
    """The host of each rank pays for it once."""

    def host_seconds():
        x = empty(4_000_000)
        torch.sim.synchronize()
        begin = sim.now()
        dist.all_reduce(x, async_op=True)
        return sim.now() - begin

    found, _ = traced(host_seconds, "library", num_ranks=2)
    launch = dpkit.sim.hardware.HOSTS["eager"].launch_seconds
    # The last to come has sent for both, on a thread beside its host.
    assert found == pytest.approx([launch, launch], rel=0.01)
