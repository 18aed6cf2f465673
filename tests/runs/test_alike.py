"""Ranks that are alike: one stands for all, as all would have been."""

from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import get_rank

import dpkit
from dpkit.experts import own_experts
from dpkit.sim.clock.clock import Clock
from dpkit.sim.hardware.clusters import cluster
from tests.runs import llama_alike
from tests.runs.alike_on_ranks import (
    ON_FOUR,
    PROGRAMS,
    both,
    ddp,
    fsdp,
    fsdp_hybrid,
    mesh_of,
)
from tests.weekly import few_of

LARGE = 1_000_000
SIZES = {  # of a small model like Llama
    "width": 256,
    "hidden": 640,
    "num_blocks": 2,
    "heads": 2,
    "kv_heads": 1,
    "vocabulary": 320,
}


def machine(k, **settings):
    """A machine whose devices each have a path of their own to a host."""
    usual = {"backing": "meta", "hosts": "per_device", "num_devices": k}
    return dpkit.sim.machine(**usual | {"devices_per_switch": 1} | settings)


def traced(program, k, *args, alike, algorithm=None, **settings):
    """Return what rank 0 returns, and the timeline."""
    with machine(k, **settings), dpkit.sim.trace() as timeline:
        values = dpkit.sim.launch(
            program, k, *args, algorithm=algorithm, alike=alike
        )
    assert len(values) == (1 if alike else k)
    return values[0], timeline


def spans_of(timeline):
    """Return what rank 0 and its device did, in an order of its own."""
    own = [s for s in timeline.spans if s.device in ("sim:0", "host:0")]
    return sorted(own, key=lambda s: (s.start, s.end, s.stream, s.name))


def blocks_of(timeline):
    return [
        (block.num_bytes, block.category)
        for block in timeline.blocks
        if block.device == "sim:0"
    ]


def check_equal(program, k, *args, **settings):
    all_, one = (
        traced(program, k, *args, alike=alike, **settings)
        for alike in (False, True)
    )
    assert all_[0] == one[0]  # values: memory, its peak, the time
    assert spans_of(all_[1]) == spans_of(one[1])
    assert blocks_of(all_[1]) == blocks_of(one[1])
    assert {block.device for block in one[1].blocks} == {"sim:0"}
    assert f"one rank of {k}" in one[1].label
    return spans_of(one[1])


WAYS = ["ring", "library"]


@pytest.mark.parametrize("k", few_of([2, 4, 8], [2]))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_rank_is_as_in_a_launch_of_all(program, way, k):
    spans = check_equal(program, k, algorithm=way)
    assert any("world" in span.stream for span in spans)


@pytest.mark.parametrize(
    ("program", "way"),
    few_of(product(ON_FOUR, WAYS), [(fsdp_hybrid, "ring")]),
)
def test_one_rank_of_four(program, way):
    """Also one that is in two groups of two."""
    check_equal(program, 4, algorithm=way)


@pytest.mark.parametrize(
    ("program", "way"),
    few_of(product(PROGRAMS, WAYS), [(ddp, "ring"), (fsdp, "library")]),
)
def test_one_rank_on_two_nodes(program, way):
    check_equal(program, 8, algorithm=way, ranks_per_node=4)


def test_one_rank_in_two_groups_on_two_nodes():
    spans = check_equal(both, 8, algorithm="library", ranks_per_node=4)
    assert {"outer", "inner"} <= {span.stream for span in spans}


def test_one_rank_where_sending_takes_longest():
    check_equal(ddp, 8, link="ethernet10")


def test_one_rank_on_a_shared_path():
    """A library's allreduce over PCIe, with the host in between."""
    settings = {"link": "pcie3", "devices_per_switch": None}
    spans = check_equal(send, 4, "all_reduce", algorithm="library", **settings)
    assert "allreduce" in {span.name for span in spans}


# -- collectives, one by one


def average(x, part, *_):
    """Averages are of floats alone."""
    dist.all_reduce(x, dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(part, x, dist.ReduceOp.AVG)


def gather(x, part, parts):
    dist.gather(part, parts if is_root() else None, 0)


def scatter(x, part, parts):
    given = [part + i for i in range(len(parts))]
    dist.scatter(x[:3], given if is_root() else None, 0)


def is_root():
    """Tell what a program may not ask."""
    return dist.distributed_c10d._get_default_group()._group_rank == 0


# What sends 3 numbers for each rank, or takes them: all in one, of one rank,
# and a list for all.
SENT = {
    "all_reduce": lambda x, part, parts: dist.all_reduce(x),
    "average": average,
    "product": lambda x, *_: dist.all_reduce(x, dist.ReduceOp.PRODUCT),
    "maximum": lambda x, *_: dist.all_reduce(x, dist.ReduceOp.MAX),
    "broadcast": lambda x, *_: dist.broadcast(x, 0),
    "reduce": lambda x, *_: dist.reduce(x, 0),
    "all_gather": lambda x, part, parts: dist.all_gather(parts, part),
    "all_gather_into_tensor": lambda x, part, _: dist.all_gather_into_tensor(
        x, part
    ),
    "reduce_scatter": lambda x, part, parts: dist.reduce_scatter(
        part, list(x.chunk(len(parts)))
    ),
    "reduce_scatter_tensor": lambda x, part, _: dist.reduce_scatter_tensor(
        part, x
    ),
    "all_to_all": lambda x, part, parts: dist.all_to_all(
        parts, [part.clone() for _ in parts]
    ),
    "all_to_all_single": lambda x, part, parts: dist.all_to_all_single(
        x, part.repeat(len(parts))
    ),
    "gather": gather,
    "scatter": scatter,
    "barrier": lambda *_: dist.barrier(),
}


def send(what, dtype=torch.float32, kind="sim"):
    """Send numbers, the same on all ranks; return what there is afterwards."""
    k = dist.get_world_size()
    x = torch.arange(3 * k, device=kind).to(dtype)
    part = torch.arange(5, 8, device=kind).to(dtype)
    parts = list(torch.zeros_like(x).chunk(k))
    SENT[what](x, part, parts)
    torch.sim.synchronize()
    if kind == "sim" and dtype.is_floating_point:
        return None, dpkit.sim.now()
    return [y.tolist() for y in (x, part, *parts)], dpkit.sim.now()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", SENT)
def test_a_collective_is_as_in_a_launch_of_all(what, way):
    """In time and in numbers, for floats, integers, and on the CPU."""
    uses = [("int64", "sim"), ("float32", "sim"), ("float64", "cpu")]
    if what == "average":
        del uses[0]
    for k in (2, 4):
        for dtype, kind in uses:
            args = what, getattr(torch, dtype), kind
            one = traced(send, k, *args, alike=True, algorithm=way)
            all_ = traced(send, k, *args, alike=False, algorithm=way)
            assert one[0] == all_[0], (k, dtype, kind)
            assert spans_of(one[1]) == spans_of(all_[1]), (k, dtype, kind)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_bytes_are_added_as_by_all(dtype):
    for way in WAYS:
        one, all_ = (
            traced(send, 8, "all_reduce", dtype, alike=a, algorithm=way)
            for a in (True, False)
        )
        assert one[0] == all_[0]


def test_a_product_of_a_thousand_bytes():
    (x, *_), _ = traced(send, 1024, "product", torch.uint8, alike=True)[0]
    assert x == [pow(i % 256, 1024, 256) for i in range(3 * 1024)]


def test_groups_and_the_store_wait_for_nobody():
    def meet():
        group = dist.new_group([0, 2])
        other = dist.new_group([1, 3])
        store = dist.distributed_c10d._get_default_store()
        x = torch.tensor([3], device="sim")
        dist.all_reduce(x, group=group)
        return other, store.add("arrived", 1), x.item()

    with machine(4):
        ((other, arrived, total),) = dpkit.sim.launch(meet, 4, alike=True)
    assert other is dist.GroupMember.NON_GROUP_MEMBER
    assert (arrived, total) == (4, 6)


# -- many


def test_a_thousand_ranks():
    """A step takes longer than on eight."""
    found = {}
    for k in (8, 1024):
        found[k], timeline = llama_alike.run(k, SIZES, 64, True, "library")
        assert {s.device for s in timeline.spans if s.kind != "launch"} == {
            *("sim:0", "host:0")
        }
    assert found[8][0] < found[1024][0]


@pytest.mark.weekly
def test_a_small_llama_on_two_nodes():
    one, all_ = (
        llama_alike.run(16, SIZES, 64, alike=alike) for alike in (True, False)
    )
    assert one[0] == all_[0]
    assert spans_of(one[1]) == spans_of(all_[1])


def test_more_devices_than_torch_numbers():
    with machine(1024):
        assert len(dpkit.devices(kind="sim")) == 128
        assert torch.sim.device_count() == 128
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(1, device=torch.device("sim", 130))
        with pytest.raises(ValueError, match="devices: 128"):
            dpkit.sim.launch(int, 129)
    with pytest.raises(ValueError, match='"meta"'):
        dpkit.sim.configure(num_devices=1024)


# -- what is on its way together


def test_copies_to_a_host_share_a_path():
    """The copy of rank 0 ends when the last of all ranks does."""

    def copy():
        torch.empty(LARGE).to("sim")
        dist.all_reduce(torch.empty(LARGE, device="sim"))

    settings = {"devices_per_switch": 4, "algorithm": "library"}
    found = {
        alike: traced(copy, 8, alike=alike, **settings)[1].spans
        for alike in (False, True)
    }
    ends = {
        alike: max(s.end for s in spans if s.name == "copy from host")
        for alike, spans in found.items()
    }
    starts = {
        alike: [s.start for s in spans if s.name == "allreduce"][-1]
        for alike, spans in found.items()
    }
    assert ends[True] == ends[False]
    assert starts[True] == starts[False]


def test_a_clock_that_stands_for_several():
    """Three of five devices copy at 2/5 of a path: two, then the third."""
    clock = Clock(cluster(5))
    clock.stand_for(3)
    spans = clock.record()
    clock.copy(None, 0, seconds=1.0, num_bytes=8, share=0.4)
    clock.copy(None, 0, seconds=1.0, num_bytes=8, share=0.4)
    clock.stop_recording()
    copies = [span for span in spans if span.kind == "copy"]
    assert [round(s.end - s.start, 6) for s in copies] == [2.0, 2.0]


# -- what is refused


def refused(program, k=4, *args, message, algorithm=None, **settings):
    with machine(k, **settings), pytest.raises(RuntimeError) as found:
        dpkit.sim.launch(program, k, *args, alike=True, algorithm=algorithm)
    assert message in str(found.value)


def test_numbers_and_slow_ranks_are_refused():
    with machine(2, backing="cpu"), pytest.raises(ValueError, match="numbers"):
        dpkit.sim.launch(int, 2, alike=True)
    with (
        machine(2, slow={1: 1.5}),
        pytest.raises(ValueError, match=r"slow rank.*\{1: 1.5\}"),
    ):
        dpkit.sim.launch(int, 2, alike=True)


ASKED = {
    "get_rank": dist.get_rank,
    "get_rank, imported": get_rank,
    "get_rank of a group": lambda: dist.get_rank(dist.group.WORLD),
    "rank of a group": lambda: dist.group.WORLD.rank(),
    "rank in a mesh": lambda: mesh_of().get_local_rank(),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_rank_is_not_told(asked):
    refused(lambda: asked(), message="does not ask which one it is (line ")


def test_pytorch_may_ask_for_the_rank():
    def sample():
        sampler = torch.utils.data.DistributedSampler(range(8))
        return sampler.rank

    with machine(4):
        assert dpkit.sim.launch(sample, 4, alike=True) == [0]


def pair():
    dist.send(torch.ones(3, device="sim"), 1)


def pair_of_any():
    dist.recv(torch.ones(3, device="sim"))


def batch_of_pairs():
    x = torch.ones(3, device="sim")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)]):
        work.wait()


@pytest.mark.parametrize("program", [pair, pair_of_any, batch_of_pairs])
def test_messages_of_pairs_are_refused(program):
    refused(program, message="send nothing from one to another")


def uneven_all_to_all():
    x = torch.ones(10, device="sim")
    dist.all_to_all_single(torch.empty_like(x), x, [1, 2, 3, 4], [1, 2, 3, 4])


def uneven_all_gather():
    outs = [torch.empty(1 + i, device="sim") for i in range(4)]
    dist.all_gather(outs, torch.ones(1, device="sim"))


def uneven_reduce_scatter():
    parts = [torch.empty(1 + i, device="sim") for i in range(4)]
    dist.reduce_scatter(torch.ones(1, device="sim"), parts)


UNEVEN = [uneven_all_to_all, uneven_all_gather, uneven_reduce_scatter]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", UNEVEN)
def test_uneven_parts_are_refused(program, way):
    refused(program, message="parts of one size", algorithm=way)


@pytest.mark.parametrize("way", WAYS)
def test_another_root_is_refused(way):
    def broadcast():
        dist.broadcast(torch.ones(3, device="sim"), 2)

    refused(broadcast, message="root: 2, runs: 0", algorithm=way)


def test_work_on_the_device_of_another_is_refused():
    def work():
        torch.ones(3, device="sim:2")

    refused(work, message="device: sim:2")
    refused(
        lambda: [work(), dist.all_reduce(torch.ones(3, device="sim"))],
        message="device: sim:2",
    )


def test_a_key_of_another_rank_is_not_waited_for():
    def wait():
        dist.distributed_c10d._get_default_store().get("of rank 1")

    message = "rank 0 waits in the store for key 'of rank 1'"
    with machine(2), pytest.raises(RuntimeError, match=message) as found:
        dpkit.sim.launch(wait, 2, alike=True)
    assert "do not run" in str(found.value.__notes__)


def test_unequal_nodes_are_refused():
    message = "group of ranks: 0, 1, 2, 3, 4, 5; ranks on each node: 2, 4"
    refused(int, 6, message=message, ranks_per_node=4)


def in_group(*ranks):
    dist.new_group(ranks)


def test_groups_that_are_not_like_the_others_are_refused():
    message = "groups that are alike (group of ranks: 0, 1, 3, of 6)"
    refused(in_group, 6, 0, 1, 3, message=message)
    # 0 1 2 are on one node, and 3 4 5 on two.
    message = "group of ranks: 0, 1, 2; ranks on each node: 1, 2; 3"
    refused(in_group, 12, 0, 1, 2, message=message, ranks_per_node=4)


def test_messages_over_unlike_links_are_refused():
    """Where other groups send, too; a library has one time for all."""
    settings = {"ranks_per_node": 4}
    refused(in_group, 8, 0, 4, message="0, 4, of 8 on 2 nodes", **settings)
    # The network is faster than the link: rank 0 is not the last.
    settings = {"ranks_per_node": 2, "link": "ethernet10"}
    message = "ranks are not alike in allgather number 0 of group 0: rank 2"
    refused(send, 8, "all_gather_into_tensor", message=message, **settings)


def test_groups_on_one_path_are_refused():
    settings = {"link": "pcie3", "devices_per_switch": None}
    message = "group of ranks: 0, 1, on a path: 2 of 4"
    refused(
        *(in_group, 4, 0, 1), message=message, algorithm="library", **settings
    )
    message = "take turns on a path"
    refused(send, 4, "all_reduce", message=message, **settings)
    settings["algorithm"] = "library"
    refused(send, 4, "all_to_all", message=message, **settings)


def test_roles_are_refused():
    for way in ("star", "tree", "hierarchical:2"):
        refused(int, message=f"algorithm: {way!r}", algorithm=way)


def test_messages_to_devices_without_a_number_are_refused():
    message = "have no number in torch (rank: 255, numbers: 0 to 127)"
    refused(int, 256, message=message, algorithm="ring")
    refused(send, 256, "all_to_all", message=message, algorithm="library")


# -- what it tells


def test_the_label_is_that_of_the_launch():
    label = dpkit.sim.label
    with machine(4):
        inside = dpkit.sim.launch(label, 4, alike=True)
        assert inside == [f"{label()}, one rank of 4"]
    _, timeline = traced(int, 4, alike=True)
    assert timeline.assumptions[0].startswith("One rank has run")
    assert "one rank of 4" in str(timeline.summary())
    _, timeline = traced(int, 4, alike=False)
    assert "one rank" not in str(timeline.summary())


def test_the_library_may_ask_which_rank_it_is():
    """A layer of experts has the first of them on the rank that stands."""

    def own():
        return len(own_experts([torch.nn.Identity()] * 8))

    with machine(4):
        assert dpkit.sim.launch(own, 4, alike=True) == [2]
