"""Attention of a sequence that ranks share equals that of one device."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional as F

import dpkit
from dpkit.sequence import (
    BY_PRODUCTS,
    FUSED,
    PartialAttention,
    join_sequence,
    merge_attention,
    own_part,
    positions,
    ring_attention,
    ulysses_attention,
)
from dpkit.sequence.running_softmax import partial_attention
from tests.kit.sequence_on_ranks import (
    CASES,
    SHAPE,
    WAYS,
    all_cases,
    attend,
    in_groups,
    largest_difference,
    one_device,
)

# Ulysses gives each rank some of the four heads.
ON_RANKS = [
    (case, size)
    for case in CASES
    for size in (1, 2, 3, 4)
    if case[0] != "ulysses" or SHAPE[1] % size == 0
]


# -- equal to one device


@pytest.mark.parametrize(("case", "size"), ON_RANKS, ids=str)
def test_all_ranks_together_equal_one_device(case, size):
    """With races looked for: what is sent must not be written meanwhile."""
    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.sim.trace(races=True) as timeline,
    ):
        ranks = dpkit.sim.launch(attend, size, *case)
    assert timeline.races == []
    assert largest_difference(ranks, case) < 1e-14


def test_in_two_processes():
    ranks = dpkit.launch(all_cases, 2, backend="gloo")
    for case in CASES:
        assert largest_difference([r[case] for r in ranks], case) < 1e-14


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sixteen_bits(case):
    ranks = dpkit.sim.launch(attend, 4, *case, torch.bfloat16)
    assert largest_difference(ranks, case, torch.bfloat16) < 0.05


@pytest.mark.parametrize("case", CASES, ids=str)
def test_groups_of_ranks(case):
    """Two groups of two, each with the whole sequence."""
    ranks = dpkit.sim.launch(in_groups, 4, case, 2)
    for number, group in enumerate((ranks[::2], ranks[1::2])):
        assert largest_difference(group, case, seed=number) < 1e-14


def test_in_a_process_of_its_own():
    ranks = dpkit.launch(all_cases, 1, backend="gloo")
    for case in CASES:
        assert largest_difference([r[case] for r in ranks], case) < 1e-14


def test_a_causal_mask_changes_what_comes_out():
    """Else a mask that is forgotten on both sides would pass."""
    for with_mask, without in zip(one_device(True), one_device(False)):
        assert (with_mask - without).abs().max() > 0.1


# -- which positions a rank has


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_parts_hold_each_position_once(size, balanced):
    parts = [positions(20, r, size, balanced) for r in range(size)]
    assert sorted(torch.cat(parts).tolist()) == list(range(20))
    x = torch.arange(40).view(2, 20)
    cut = [
        own_part(x, 1, rank=r, world_size=size, balanced=balanced)
        for r in range(size)
    ]
    assert join_sequence(cut, 1, balanced).equal(x)
    assert all(part[0].equal(p) for part, p in zip(cut, parts))


@pytest.mark.parametrize("size", [2, 4])
def test_balanced_parts_see_as_many_keys(size):
    def seen(rank, balanced):
        return int((positions(48, rank, size, balanced) + 1).sum())

    assert len({seen(r, balanced=True) for r in range(size)}) == 1
    in_order = [seen(r, balanced=False) for r in range(size)]
    assert in_order == sorted(set(in_order))


@pytest.mark.parametrize(
    ("length", "size", "balanced", "words"),
    [
        (33, 4, False, r"length: 33, pieces: 4, ranks: 4\); pad it"),
        (36, 4, True, r"length: 36, pieces: 8, ranks: 4\); pad it"),
    ],
)
def test_lengths_that_ranks_do_not_divide(length, size, balanced, words):
    with pytest.raises(ValueError, match=words):
        own_part(
            torch.zeros(1, length),
            1,
            rank=0,
            world_size=size,
            balanced=balanced,
        )


def test_ranks_that_are_not_there():
    with pytest.raises(ValueError, match=r"no such rank \(rank: 2, ranks: 2"):
        positions(8, 2, 2)
    with pytest.raises(ValueError, match="world_size"):
        positions(8, 0, 0)


# -- the running maximum and sum


def test_any_order_of_blocks_gives_the_softmax():
    scores, values = torch.randn(2, 3, 5, 12), torch.randn(2, 3, 12, 4)
    scores[..., 7] += 500  # beyond what exp can hold
    scores, values = scores.double(), values.double()
    expected = scores.softmax(-1) @ values
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        blocks = [
            partial_attention(scores.chunk(3, -1)[b], values.chunk(3, -2)[b])
            for b in order
        ]
        met = merge_attention(merge_attention(blocks[0], blocks[1]), blocks[2])
        assert (met.output - expected).abs().max() < 1e-14
        sums = scores.logsumexp(-1, keepdim=True)
        assert (met.logsumexp - sums).abs().max() < 1e-12


def test_a_block_that_counts_for_nothing_changes_nothing():
    """Its scores are so small that their exponentials are 0."""
    zeros = torch.zeros(1, 1)
    a = PartialAttention(zeros + 3, zeros, zeros + 2)
    b = PartialAttention(zeros + 7, zeros - 1e4, zeros + 5)
    for met in merge_attention(a, b), merge_attention(b, a):
        assert met.output.item() == 1.5


# -- what is refused


def refused(attention, shapes, **options):
    attention(*[torch.zeros(s, device="sim") for s in shapes], **options)


PART = 1, 4, 6, 2


@pytest.mark.parametrize(
    ("attention", "shapes", "options", "words"),
    [
        (ulysses_attention, [(1, 3, 6, 2)] * 3, {}, "heads: 3, ranks: 2"),
        (ring_attention, [(1, 4, 5, 2)] * 3, {"balanced": True}, "length: 5"),
        (ring_attention, [PART, (1, 2, 6, 2), PART], {}, "need one shape"),
        (ulysses_attention, [PART[1:]] * 3, {}, "need one shape"),
    ],
)
def test_what_ranks_refuse(attention, shapes, options, words):
    def program():
        refused(attention, shapes, **options)

    with pytest.raises(RuntimeError, match=words) as error:
        dpkit.sim.launch(program, 2)
    assert isinstance(error.value.__cause__, ValueError)


# -- bytes


def attention_of(way, kernel, causal):
    """Return a function of queries, keys and values."""
    if way == "one device":
        return partial(F.scaled_dot_product_attention, is_causal=causal)
    if way == "ulysses":
        return partial(ulysses_attention, causal=causal)
    _, balanced = WAYS[way]
    return partial(
        ring_attention, causal=causal, balanced=balanced, kernel=kernel
    )


def passes(way, kernel, shape, dtype, causal=True):
    """Attend on parts of zeros.

    Return the seconds of forward and backward, and when backward began.
    """
    attention = attention_of(way, kernel, causal)
    device = torch.device("sim", dist.get_rank())
    q, k, v, gradient = (
        torch.zeros(shape, dtype=dtype, device=device) for _ in range(4)
    )
    leaves = [x.requires_grad_() for x in (q, k, v)]
    moments = []

    def now():
        torch.sim.synchronize()
        dist.barrier()
        torch.sim.synchronize()
        moments.append(dpkit.sim.now())

    now()
    out = attention(*leaves)
    torch.sim.synchronize()
    moments.append(dpkit.sim.now())
    now()
    out.backward(gradient)
    torch.sim.synchronize()
    return moments[1] - moments[0], dpkit.sim.now() - moments[2], moments[2]


def sent(timeline, rank, since=0.0, until=float("inf")):
    return sum(
        span.num_bytes
        for span in timeline.spans
        if span.device == f"sim:{rank}"
        and span.name.startswith("copy to")
        and since <= span.start < until
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_bytes_of_every_rank(way, size, dtype):
    b, heads, length, head_size = 1, 4, 64, 16
    part = b, heads, length // size, head_size
    with (
        dpkit.sim.machine(backing="meta", hosts="per_device"),
        dpkit.sim.trace() as timeline,
    ):
        times = dpkit.sim.launch(passes, size, way, FUSED, part, dtype)
    numbers = b * heads * length // size * head_size
    n = dtype.itemsize * numbers
    if way == "ulysses":  # q, k, v and o; backward as many
        forward = backward = 4 * n * (size - 1) // size
    else:  # k and v, and their gradients in float32, one step more
        forward = 2 * n * (size - 1)
        backward = 2 * n * (size - 1) + 2 * 4 * numbers * size
    between = times[0][2]
    for rank in range(size):
        assert sent(timeline, rank, until=between) == forward
        assert sent(timeline, rank, since=between) == backward


# -- time, at lengths where attention counts


LENGTH, HEADS, SIZE = 2**17, 32, 128


@pytest.fixture(scope="module")
def timed():
    """Return a function from a way and k to its seconds and kernels' ones."""
    found = {}

    def time(way, size, link="nvlink3"):
        if (way, size, link) not in found:
            part = 1, HEADS, LENGTH // size, SIZE
            with (
                dpkit.sim.machine(
                    backing="meta",
                    hosts="per_device",
                    accelerator="a100",
                    link=link,
                ),
                dpkit.sim.trace() as timeline,
            ):
                seconds = dpkit.sim.launch(
                    passes, size, way, FUSED, part, torch.bfloat16
                )
            found[way, size, link] = seconds, timeline
        return found[way, size, link]

    return time


def of_kernels(timeline, rank, backward):
    """Return the seconds that a rank spends in kernels of attention."""
    return sum(
        span.end - span.start
        for span in timeline.spans
        if span.device == f"sim:{rank}"
        and "attention" in span.name
        and span.name.endswith("backward") == backward
    )


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_kernels_take_what_the_closed_forms_say(timed, size, backward):
    """A rank has (r + 1/2) / k² of all scores, and 1 / 2k if balanced.

    One device has half of them.
    """
    _, alone = timed("one device", 1)
    whole = 2 * of_kernels(alone, 0, backward)
    for rank in range(size):
        _, timeline = timed("ring", size)
        in_order = of_kernels(timeline, rank, backward) / whole
        assert in_order == pytest.approx((rank + 0.5) / size**2, rel=0.01)
        _, timeline = timed("balanced ring", size)
        balanced = of_kernels(timeline, rank, backward) / whole
        assert balanced == pytest.approx(1 / (2 * size), rel=0.01)


@pytest.mark.parametrize("size", [2, 4])
def test_the_slowest_rank_takes_little_more(timed, size):
    """What is added up over blocks takes the rest, up to a tenth."""
    one, _ = timed("one device", 1)
    for way, share in [
        ("ring", (2 * size - 1) / size**2),
        ("balanced ring", 1 / size),
        ("ulysses", 1 / size),
    ]:
        ranks, _ = timed(way, size)
        for direction in (0, 1):
            slowest = max(rank[direction] for rank in ranks)
            assert 1 < slowest / (share * one[0][direction]) < 1.1, way


def test_messages_travel_beside_the_work(timed):
    """Over a slow link they take longer, but not as long as the work.

    Forward, a rank sends three blocks: 1.6 GB, or 64 ms at 25 GB/s.
    """
    near, _ = timed("balanced ring", 4)
    far, timeline = timed("balanced ring", 4, "infiniband200")
    copies = [
        span
        for span in timeline.spans
        if (span.device, span.name) == ("sim:0", "copy to sim:1")
    ]
    assert sum(s.end - s.start for s in copies[:3]) > 0.06
    for rank in range(4):
        assert far[rank][0] - near[rank][0] < 0.001


@pytest.mark.parametrize(
    ("kernel", "least", "most"), [(BY_PRODUCTS, 2, 8), (FUSED, 0, 0.25)]
)
def test_all_scores_of_a_block_are_in_memory_by_products(kernel, least, most):
    """In units of the bytes of the scores of a block."""
    part = 1, 4, 4096, 16

    def peak():
        passes("ring", kernel, part, torch.float32, causal=False)
        return torch.sim.max_memory_allocated()

    with dpkit.sim.machine(backing="meta", hosts="per_device"):
        peaks = dpkit.sim.launch(peak, 2)
    for num_bytes in peaks:
        assert least < num_bytes / (4 * 4 * 4096**2) < most
