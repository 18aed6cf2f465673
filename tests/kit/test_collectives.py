"""Tests of dpkit.collectives."""

import dataclasses
from functools import partial

import pytest
import torch

import dpkit
from dpkit import plan_runner
from dpkit.collectives import ALGORITHMS, GATHERS, SCATTERS
from dpkit.plans.algorithms import ALLREDUCE, allreduce_plan
from dpkit.plans.plan import Plan, num_elements
from dpkit.sim.hardware import ACCELERATORS, Link


def whole_numbers(devices, shape=(2, 3), dtype=torch.float32):
    """Random tensors of whole numbers, whose sums are exact, and copies."""
    generator = torch.Generator().manual_seed(len(devices))
    wholes = [
        torch.randint(-9, 9, shape, generator=generator).to(dtype)
        for _ in devices
    ]
    copies = zip(wholes, devices, strict=True)
    return wholes, [whole.to(d, copy=True) for whole, d in copies]


def nodes(algorithm, p):
    """Return what an algorithm needs besides: for one, the nodes of p."""
    if algorithm != "hierarchical":
        return [{}]
    return [{"ranks_per_node": g} for g in range(1, p + 1) if p % g == 0]


EXPECTED = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0),
}


def check_allreduce(devices, length, algorithm, op="sum", dtype=None):
    """Every rank, every element, and no rank shares memory with another."""
    for given in nodes(algorithm, len(devices)):
        dtype = dtype or torch.float64
        wholes, tensors = whole_numbers(devices, (length,), dtype)
        dpkit.allreduce(tensors, op, algorithm, **given)
        expected = EXPECTED[op](torch.stack(wholes))
        for tensor in tensors:
            assert tensor.dtype == dtype
            assert torch.allclose(tensor.cpu(), expected, rtol=0, atol=1e-12)
        tensors[0].fill_(99)
        for tensor in tensors[1:]:
            assert not (tensor == 99).any()


# That each plan is right for 1 to 17 ranks is shown in test_plans; here, that
# what the messages say is done: powers of two, their neighbours, and odd ones.
WORLDS = [1, 2, 3, 4, 6, 8, 17]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("p", WORLDS)
def test_allreduce_on_every_rank(algorithm, p):
    devices = dpkit.devices(p, "cpu")
    for length in (0, 1, p - 1, p, 2 * p + 1, 1009):
        check_allreduce(devices, length, algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("p", [2, 3, 6])
def test_allreduce_on_every_simulated_device(algorithm, p):
    devices = dpkit.devices(p, "sim")
    for length in (0, 1, p - 1, 2 * p + 1):
        check_allreduce(devices, length, algorithm)


# The plan says which messages are sent, and nothing else: each operation by
# one algorithm that adds all there is and one that adds pieces.
@pytest.mark.parametrize("algorithm", ["star", "halving_doubling"])
@pytest.mark.parametrize("op", EXPECTED)
def test_ops_and_dtypes(get_ranks, algorithm, op):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        if (op, dtype) != ("mean", torch.int64):
            p = 4 if op == "mean" else 5  # exact in bfloat16
            check_allreduce(get_ranks(p), 2 * p + 1, algorithm, op, dtype)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_ranks_have_the_same_bits(get_ranks, algorithm):
    """Replicas whose last bits differ would drift apart."""
    for p in (3, 6):
        for given in nodes(algorithm, p):
            tensors = [torch.randn(109, device=d) for d in get_ranks(p)]
            dpkit.allreduce(tensors, "mean", algorithm, **given)
            for tensor in tensors[1:]:
                assert torch.equal(tensor.cpu(), tensors[0].cpu())


@pytest.mark.parametrize("algorithm", ["star", "ring"])
def test_large_tensors(algorithm):
    """Larger than the cache, so that they are worked through in pieces."""
    check_allreduce(dpkit.devices(3, "cpu"), 2_100_001, algorithm)


PLANS = {
    **{name: partial(allreduce_plan, name) for name in ALLREDUCE},
    "hierarchical": lambda p: allreduce_plan("hierarchical:2", p),
    "scatters": lambda p: Plan("", p, p, SCATTERS["ring"](p)),
    "gathers": lambda p: Plan("", p, p, GATHERS["direct"](p)),
}


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("name", PLANS)
def test_pieces_give_the_bits_that_messages_give(monkeypatch, name, op):
    """In which order a number is added up does not depend on its piece."""
    for p, length in ((2, 100), (4, 1), (6, 1009)):
        plan = PLANS[name](p)
        whole = [torch.randn(length) for _ in range(p)]
        pieces = [x.clone() for x in whole]
        plan_runner.run(plan, whole, op)
        # On 6 ranks each chunk of 168 or 169 elements has 9 pieces.
        few = 4 * 6 * 20
        monkeypatch.setattr(plan_runner, "CACHE_BYTES", few)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        plan_runner.run_in_pieces(plan, pieces, op)
        for x, other in zip(pieces, whole, strict=True):
            assert torch.equal(x, other)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_shape(get_ranks, shape):
    wholes, tensors = whole_numbers(get_ranks(3), shape)
    dpkit.allreduce(tensors, algorithm="ring")
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.stack(wholes).sum(0))


def test_tensors_that_are_not_contiguous(get_ranks):
    wholes, tensors = whole_numbers(get_ranks(3), (4, 5))
    views = [tensor.t()[1:] for tensor in tensors]
    dpkit.allreduce(views, algorithm="ring")
    total = torch.stack(wholes).sum(0)
    for whole, tensor in zip(wholes, tensors, strict=True):
        assert torch.equal(tensor.cpu()[:, 1:], total[:, 1:])
        assert torch.equal(tensor.cpu()[:, 0], whole[:, 0])


@pytest.mark.parametrize("algorithm", SCATTERS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_reduce_scatter(get_ranks, algorithm, p):
    for length in (0, 1, p, 2 * p + 1):
        wholes, tensors = whole_numbers(get_ranks(p), (length,))
        parts = dpkit.reduce_scatter(tensors, algorithm=algorithm)
        expected = torch.stack(wholes).sum(0).tensor_split(p)
        for rank, part in enumerate(parts):
            assert part.device == tensors[rank].device
            assert torch.equal(part.cpu(), expected[rank])
            part.fill_(99)  # a view
            assert torch.equal(tensors[rank].tensor_split(p)[rank], part)


@pytest.mark.parametrize("op", ["mean", "max", "min"])
def test_reduce_scatter_of_other_ops(get_ranks, op):
    wholes, tensors = whole_numbers(get_ranks(4), (11,))
    expected = EXPECTED[op](torch.stack(wholes)).tensor_split(4)
    parts = dpkit.reduce_scatter(tensors, op)
    for part, right in zip(parts, expected, strict=True):
        assert torch.equal(part.cpu(), right)


@pytest.mark.parametrize("algorithm", GATHERS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_allgather(get_ranks, algorithm, p):
    for length in (0, 1, p, 2 * p + 1):
        wholes, tensors = whole_numbers(get_ranks(p), (length,))
        dpkit.allgather(tensors, algorithm)
        parts = [whole.tensor_split(p)[r] for r, whole in enumerate(wholes)]
        for tensor in tensors:
            assert torch.equal(tensor.cpu(), torch.cat(parts))


def test_the_two_halves_of_an_allreduce(get_ranks):
    wholes, tensors = whole_numbers(get_ranks(5), (3, 4))
    dpkit.reduce_scatter(tensors)
    dpkit.allgather(tensors)
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.stack(wholes).sum(0))


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_alltoall(get_ranks, p):
    for length in (0, p, 3 * p):
        wholes, tensors = whole_numbers(get_ranks(p), (length,))
        dpkit.alltoall(tensors)
        given = [whole.tensor_split(p) for whole in wholes]
        for rank, tensor in enumerate(tensors):
            expected = torch.cat([parts[rank] for parts in given])
            assert torch.equal(tensor.cpu(), expected)


def test_alltoall_of_parts_that_differ_in_size(get_ranks):
    _, tensors = whole_numbers(get_ranks(3), (7,))
    with pytest.raises(ValueError, match=r"\(elements: 7, ranks: 3\)"):
        dpkit.alltoall(tensors)


# What passes the ports, and how long it takes.


def sent(act, *args, **kwargs):
    with dpkit.sim.trace() as timeline:
        act(*args, **kwargs)
    return [
        (span.device, span.name.removeprefix("copy to "), span.num_bytes)
        for span in timeline.spans
        if span.kind == "copy" and span.name.startswith("copy to")
    ]


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("length", [1, 1009])
def test_the_plan_is_what_is_sent(algorithm, length):
    for p in (2, 6):
        for given in nodes(algorithm, p):
            plan = allreduce_plan(algorithm, p, **given)
            expected = [
                (f"sim:{m.source}", f"sim:{m.target}", 4 * size)
                for m in plan.messages
                if (size := num_elements(plan, m, length))
            ]
            tensors = [
                torch.ones(length, device=d) for d in dpkit.devices(p, "sim")
            ]
            found = sent(
                dpkit.allreduce, tensors, algorithm=algorithm, **given
            )
            assert found == expected


SWITCH = Link(
    "switch",
    bytes_per_second=16e9,
    achieved=1.0,
    latency_seconds=10e-6,
    peer_to_peer=True,
)


def seconds(act, *args, **settings):
    """Time a collective of 160 MB on 8 devices without numbers."""
    given = {"link": SWITCH, "hosts": "per_device", **settings}
    with dpkit.sim.machine(backing="meta", **given):
        devices = dpkit.devices(8, "sim")
        tensors = [torch.empty(40_000_000, device=d) for d in devices]
        with dpkit.Timer(devices) as timer:
            act(tensors, *args)
        return timer.seconds


def gamma():
    """Seconds to add a byte: two are read and one is written."""
    v100 = ACCELERATORS["v100"]
    return 3 / (v100.bytes_per_second * v100.achieved_bytes)


@pytest.mark.parametrize(
    ("algorithm", "messages", "moved", "added"),
    [
        ("star", 14, 14, 7),
        ("tree", 6, 6, 3),
        ("ring", 14, 14 / 8, 7 / 8),
        ("direct", 14, 14 / 8, 7 / 8),
        ("recursive_doubling", 3, 3, 3),
        ("halving_doubling", 6, 14 / 8, 7 / 8),
    ],
)
def test_the_clock_and_the_closed_forms(algorithm, messages, moved, added):
    n = 160e6
    expected = messages * 10e-6 + moved * n / 16e9 + added * n * gamma()
    found = seconds(dpkit.allreduce, "sum", algorithm)
    assert found == pytest.approx(expected, rel=0.02)


def test_on_the_current_streams_a_ring_is_as_slow_as_a_star(monkeypatch):
    """What the streams for copies are for."""
    ring = seconds(dpkit.allreduce, "sum", "ring")
    monkeypatch.setattr("dpkit.streams.copy_streams", lambda device: None)
    slow = seconds(dpkit.allreduce, "sum", "ring")
    assert slow > 5 * ring
    assert slow == pytest.approx(
        seconds(dpkit.allreduce, "sum", "star"), rel=0.3
    )


def test_without_peer_to_peer_all_share_one_path():
    through_host = dataclasses.replace(SWITCH, peer_to_peer=False)
    ring, star = (
        seconds(dpkit.allreduce, "sum", name, link=through_host)
        for name in ("ring", "star")
    )
    assert ring == pytest.approx(star, rel=0.1)


def test_a_receive_buffer_at_a_time():
    """The root of a star holds one tensor of another rank, not all."""
    devices = dpkit.devices(6, "sim")
    tensors = [torch.ones(1000, device=d) for d in devices]
    before = torch.sim.memory_allocated(0)
    torch.sim.reset_peak_memory_stats(0)
    dpkit.allreduce(tensors, algorithm="star")
    assert torch.sim.max_memory_allocated(0) - before == 4000


# What is refused, and what else is promised.


def test_allreduce_of_complex_numbers(get_ranks):
    wholes, tensors = whole_numbers(get_ranks(3), dtype=torch.complex64)
    dpkit.allreduce(tensors)
    for tensor in tensors:
        assert tensor.dtype == torch.complex64
        assert torch.equal(tensor.cpu(), torch.stack(wholes).sum(0))


def test_allreduce_is_in_place_and_devices_stay(get_ranks):
    devices = get_ranks(3)
    _, tensors = whole_numbers(devices)
    objects = list(tensors)
    dpkit.allreduce(tensors)
    assert all(a is b for a, b in zip(objects, tensors, strict=True))
    assert [t.device for t in tensors] == devices
    tensors[1].zero_()
    assert tensors[0].any()
    assert tensors[2].any()


def test_allreduce_of_leaves_that_require_gradients(get_ranks):
    replicas = dpkit.replicate([torch.ones(3)], get_ranks(2))
    dpkit.allreduce([params[0] for params in replicas])
    assert replicas[1][0].tolist() == [2, 2, 2]
    assert replicas[1][0].is_leaf


@pytest.mark.parametrize("algorithm", ["star", "tree", "library"])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_broadcast(get_ranks, algorithm, k):
    for root in {0, k // 2, k - 1}:
        wholes, tensors = whole_numbers(get_ranks(k))
        dpkit.broadcast(tensors, root, algorithm)
        for tensor in tensors:
            assert torch.equal(tensor.cpu(), wholes[root])


@pytest.mark.parametrize("algorithm", ["star", "tree", "library"])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_reduce_changes_the_root_alone(get_ranks, algorithm, k, op):
    for root in {0, k // 2, k - 1}:
        wholes, tensors = whole_numbers(get_ranks(k))
        dpkit.reduce(tensors, op, root, algorithm)
        for rank, tensor in enumerate(tensors):
            whole = wholes[rank]
            if rank == root:
                whole = EXPECTED[op](torch.stack(wholes))
            assert torch.allclose(tensor.cpu(), whole)


def test_reduce_into_a_root_that_is_not_contiguous(get_ranks):
    for algorithm in ("star", "tree", "library"):
        wholes, tensors = whole_numbers(get_ranks(4), (3, 5))
        views = [tensor.t() for tensor in tensors]
        dpkit.reduce(views, root=1, algorithm=algorithm)
        wholes[1] = torch.stack(wholes).sum(0)
        for whole, tensor in zip(wholes, tensors, strict=True):
            assert torch.equal(tensor.cpu(), whole)


def test_shapes_or_dtypes_differ(get_ranks):
    devices = get_ranks(2)
    one, other = (torch.zeros(2, 3, device=d) for d in devices)
    words = r"rank 0: \(2, 3\) torch.float32, rank 1: "
    for wrong in (other.reshape(3, 2), other.double()):
        for act in (dpkit.allreduce, dpkit.broadcast, dpkit.reduce):
            with pytest.raises(ValueError, match=words):
                act([one, wrong])


def test_two_ranks_on_one_storage(get_ranks):
    (device,) = get_ranks(1)
    x = torch.ones(4, device=device)
    for pair in ([x, x], [x, x[:]], [x[:2], x[2:]]):
        with pytest.raises(ValueError, match=r"share one storage.*0 and 1"):
            dpkit.allreduce(pair)
    with pytest.raises(ValueError, match=r"share one storage.*0 and 2"):
        dpkit.allreduce([x, torch.ones(4, device=device), x])
    assert x.tolist() == [1, 1, 1, 1]


def test_tensors_without_elements_share_nothing(get_ranks):
    (device,) = get_ranks(1)
    x = torch.ones(4, device=device)
    dpkit.allreduce([x[:0], x[:0]])
    dpkit.allreduce([torch.ones(0, device=device) for _ in range(3)])


def test_unknown_words(get_ranks):
    _, tensors = whole_numbers(get_ranks(2))
    with pytest.raises(ValueError, match=r"algorithm: 'rung', known: star"):
        dpkit.allreduce(tensors, algorithm="rung")
    with pytest.raises(ValueError, match=r"op: 'avg', known: sum, mean"):
        dpkit.allreduce(tensors, op="avg")
    with pytest.raises(ValueError, match=r"root: 2, ranks: 0 to 1"):
        dpkit.broadcast(tensors, root=2)
    with pytest.raises(ValueError, match=r"root: -1, ranks: 0 to 1"):
        dpkit.reduce(tensors, root=-1)


def test_mean_of_integers(get_ranks):
    _, tensors = whole_numbers(get_ranks(2), dtype=torch.int64)
    with pytest.raises(ValueError, match=r"no exact mean \(dtype: torch.int"):
        dpkit.allreduce(tensors, op="mean")


def test_maximum_of_complex_numbers(get_ranks):
    _, tensors = whole_numbers(get_ranks(2), dtype=torch.complex64)
    with pytest.raises(ValueError, match=r"no order \(dtype: torch.complex"):
        dpkit.allreduce(tensors, op="max")


def test_no_tensors():
    for act in (dpkit.allreduce, dpkit.broadcast, dpkit.reduce):
        with pytest.raises(ValueError, match=r"\(tensors: 0\)"):
            act([])


def test_a_plan_that_was_asked_for_cannot_be_changed():
    """It is made once, for all: a change would be everybody's."""
    plan = allreduce_plan("ring", 3)
    with pytest.raises(AttributeError):
        plan.steps[0].pop()


def test_elements_that_share_their_memory(get_ranks):
    one, other = get_ranks(2)
    x, y = torch.ones(4, device=one), torch.ones(1, device=other).expand(4)
    with pytest.raises(ValueError, match=r"share their memory \(rank: 1"):
        dpkit.allreduce([x, y])
    assert x.tolist() == [1, 1, 1, 1]


def test_parts_of_parameters_can_be_changed(get_ranks):
    replicas = dpkit.replicate([torch.ones(5)], get_ranks(2))
    parts = dpkit.reduce_scatter([params[0] for params in replicas])
    parts[1].mul_(3)
    assert replicas[1][0].tolist()[3:] == [6, 6]


def test_what_is_no_list_of_tensors():
    for act in (dpkit.allreduce, dpkit.broadcast, dpkit.reduce_scatter):
        with pytest.raises(TypeError, match=r"list of .*\(shape: \(3,\)\)"):
            act(torch.ones(3))
        with pytest.raises(TypeError, match=r"\(type: NoneType\)"):
            act([torch.ones(3), None])


def test_nodes_where_they_belong(get_ranks):
    tensors = [torch.ones(3, device=d) for d in get_ranks(4)]
    with pytest.raises(ValueError, match=r"needs .*ranks_per_node: None"):
        dpkit.allreduce(tensors, algorithm="hierarchical")
    with pytest.raises(ValueError, match=r"'ring', ranks_per_node: 2"):
        dpkit.allreduce(tensors, algorithm="ring", ranks_per_node=2)
    with pytest.raises(ValueError, match=r"ranks: 4, ranks_per_node: 3"):
        dpkit.allreduce(tensors, algorithm="hierarchical", ranks_per_node=3)
