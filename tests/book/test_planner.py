"""What devices hold, what seconds are for, and the search of layouts."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest

import pytest
import torch
from recorders.trust import plans

from dpbook.formulas.ring_attention import share
from dpbook.formulas.sharding import kept_bytes
from dpbook.limits import trust
from dpbook.limits.comparisons import mean_factor, read
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout, all_layouts
from dpbook.planner.networks import NETWORKS, Planned
from dpbook.planner.search import others, plan, search, why, why_not
from dpbook.planner.work import (
    SUSTAINED,
    Attention,
    Counts,
    ends_counts,
    layer_counts,
    work,
)
from dpbook.planner.zero_messages import BY_TENSOR
from dpkit.plans.library_costs import even_seconds, library_seconds
from dpkit.schedules.bubble import makespan
from dpkit.sim.hardware import ACCELERATORS
from dpkit.sim.hardware.clusters import cluster
from tests.repository import ROOT


def nodes(count):
    return cluster(
        count,
        "h100",
        "nvlink4",
        ranks_per_node=8,
        network="infiniband400",
    )


PLANS = ROOT / "book" / "_data" / "plans.json"


def load(name):
    return json.loads((PLANS.parent / f"{name}.json").read_text())


class NoEnds(Planned):
    def ends(self, _):
        return Counts(0)


SMALL = Planned(layers=8, hidden=256, heads=4, vocabulary=1000, sequence=128)
CASE = Case(SMALL, 64, nodes(16))


# -- layouts


def test_layouts_are_all_ways_once():
    """All of d · t · p = 8 that divide, by a count of all triples."""
    found = list(
        all_layouts(
            num_devices=8,
            batch=32,
            blocks=4,
            most_tensor=2,
            most_micro_batch=4,
            recompute=("none",),
        )
    )
    assert len(set(found)) == len(found)
    cuts = {layout[:3] for layout in found}
    assert cuts == {
        (8 // t // p, t, p) for t in (1, 2) for p in (1, 2, 4) if t * p <= 8
    }
    for layout in found:
        assert layout.num_devices == 8
        assert 32 % (layout.data * layout.micro_batch) == 0
        assert layout.chunks == 1 or layout.pipeline > 1
        assert layout.zero < 3 or layout.pipeline == 1
        assert layout.zero == 0 or layout.data > 1


def test_layouts_share_sequences_in_all_ways_once():
    """All of d · c · t · p = 8, by a count of all of them."""
    found = list(
        all_layouts(
            num_devices=8,
            batch=32,
            blocks=4,
            most_tensor=2,
            most_micro_batch=1,
            recompute=("none",),
            most_context=5,
        )
    )
    assert len(set(found)) == len(found)
    assert {layout.cut for layout in found} == {
        (8 // t // p // c, t, p, c, 1, 1)
        for t in (1, 2)
        for p in (1, 2, 4)
        for c in (1, 2, 4)
        if t * p * c <= 8
    }
    assert {layout.num_devices for layout in found} == {8}


@pytest.mark.parametrize(
    ("sequence", "sizes"), [(8192, {1}), (32_768, {1, 2, 4})]
)
def test_the_search_shares_long_sequences_alone(sequence, sizes):
    case = Case(replace(SMALL, sequence=sequence), 64, nodes(16))
    assert {layout.context for layout in case.layouts()} == sizes


@pytest.mark.parametrize(
    ("network", "num_devices"),
    [
        (NETWORKS["7B"], 24),
        (NETWORKS["70B"], 24),
        (NETWORKS["70B"], 40),
        (NETWORKS["405B"], 448),
        (NETWORKS["175B of 2022"], 48),
        (NETWORKS["530B of 2022"], 280),
        (NETWORKS["ResNet-50"], 24),
        (
            Planned(
                layers=12, hidden=768, heads=12, vocabulary=1000, sequence=128
            ),
            24,
        ),  # 12 heads, nodes of 8
        (
            Planned(
                layers=12,
                hidden=4096,
                heads=32,
                vocabulary=1000,
                sequence=128,
                key_heads=4,
            ),
            48,
        ),
        (
            Planned(
                layers=12,
                hidden=3584,
                heads=28,
                vocabulary=1000,
                sequence=128,
                key_heads=28,
            ),
            56,
        ),
    ],
)
def test_a_tensor_group_divides_heads_and_node(network, num_devices):
    """By a list of all numbers: 64 heads are not shared by 5 devices."""
    machine = cluster(
        num_devices,
        "a100",
        "nvlink3",
        ranks_per_node=8,
        network="infiniband200",
    )
    case = Case(network, 20 * num_devices, machine)
    counts = [num_devices, 8]
    if isinstance(network, Planned):
        counts += [network.heads, network.key_heads or network.heads]
    else:
        counts += [1]
    expected = {
        t
        for t in range(1, num_devices + 1)
        if all(count % t == 0 for count in counts)
    }
    assert {layout.tensor for layout in case.layouts()} == expected


def test_one_node_of_twelve_devices_shares_by_its_divisors():
    case = Case(NETWORKS["175B of 2022"], 48, cluster(12, "a100", "nvlink3"))
    found = {layout.tensor for layout in case.layouts()}
    assert found == {1, 2, 3, 4, 6, 12}


def test_interleaving_leaves_no_more_idle():
    chunks = {
        layout.chunks
        for layout in all_layouts(
            num_devices=16,
            batch=256,
            blocks=126,
            most_tensor=1,
            most_micro_batch=1,
            recompute=("none",),
        )
        if layout.pipeline == 16
    }
    assert chunks == {1, 2, 4, 8}  # of 126 layers, 8 at most on a device


# -- memory


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_states_are_sharded_as_in_the_chapter(zero):
    """But for the blocks that are whole while they compute."""
    layout = Layout(16, zero=zero)
    found = CASE.memory(layout)
    number = CASE.parameters_of(layout)
    shards = {
        name: num_bytes / kept_bytes(0, number, 16)[name]
        for name, num_bytes in kept_bytes(zero, number, 16).items()
    }
    block = SMALL.layer_parameters
    whole = {2: (0, 2 * 4 * block), 3: (4 * 2 * block, 0)}.get(zero, (0, 0))
    assert found.weights - whole[0] == 2 * number * shards["parameters"]
    assert found.gradients - whole[1] == 4 * number * shards["gradients"]
    assert found.state == 12 * number * shards["state"]


def test_activations_are_those_of_the_first_stage():
    """1F1B: p micro-batches of 1/p of the layers, so all layers' worth."""
    kept = SMALL.kept_bytes(2, tensor=2, recompute="none")
    deep = CASE.memory(Layout(2, 2, 4, 2))
    assert deep.activations == 4 * 2 * kept
    # The paper's 1 + (p - 1)/(pn): with n = 2, times 11/8.
    twice = CASE.memory(Layout(2, 2, 4, 2, chunks=2))
    assert twice.activations == pytest.approx(11 / 8 * 8 * kept)


def stages_in_flight(network, p, v, m, rank):
    """Return the most blocks that a device holds, by the order of its steps.

    Blocks are missing in the first and in the last stage.
    """
    blocks = [1] * (p * v)
    blocks[0] = blocks[-1] = 0
    assert sum(blocks) == network.num_blocks
    actions = interleaved_actions(p, m, v, rank)
    held = most = 0
    for kind, stage in actions:
        held += blocks[stage] * (1 if kind == "F" else -1)
        most = max(most, held)
    return most


def interleaved_actions(p, m, v, rank):
    """Yield forward and backward of stages, in Megatron's order."""
    ahead = 2 * (p - rank - 1) + (v - 1) * p if v > 1 else p - rank - 1
    warm_up = min(m * v, ahead)
    forward = [
        rank + p * chunk
        for _ in range(m // p)
        for chunk in range(v)
        for _ in range(p)
    ]
    backward = [
        rank + p * (v - 1 - chunk)
        for _ in range(m // p)
        for chunk in range(v)
        for _ in range(p)
    ]
    for stage in forward[:warm_up]:
        yield "F", stage
    for stage, behind in zip_longest(forward[warm_up:], backward):
        if stage is not None:
            yield "F", stage
        yield "B", behind


@pytest.mark.parametrize(("v", "m"), [(8, 16), (8, 32), (8, 64), (1, 32)])
def test_the_second_device_holds_most_where_the_first_has_a_block_fewer(v, m):
    p = 16
    network = replace(SMALL, layers=p * v - 2, heads=4)
    case = Case(network, m, nodes(p))
    layout = Layout(1, 1, p, chunks=v)
    for rank in (0, 1):
        assert case.blocks_in_flight(layout, rank) == stages_in_flight(
            network, p, v, m, rank
        )
    assert case.fullest(layout) == 1
    block = case.parts(layout).block.counts
    held = case.memory(layout)
    assert held.weights == 2 * v * block.parameters
    assert held.activations == block.kept * case.blocks_in_flight(layout, 1)


def test_it_is_said_why_a_layout_does_not_fit():
    """Without as many blocks as it names, it fits; with one more, not."""
    case = Case(NETWORKS["405B"], 2048, nodes(8192))
    layout = Layout(64, 8, 16, chunks=8, zero=2)
    words = why_not(case, layout)
    held, fitting = map(int, re.findall(r"of (\d+) ", words))
    assert held == case.blocks_in_flight(layout, rank=1) == 141
    each = case.parts(layout).block.counts.kept
    least = case.memory(layout).total - (held - fitting) * each
    assert least <= case.room < least + each
    assert "Most are activations" in words


def test_it_names_what_is_most():
    case = Case(NETWORKS["405B"], 2048, nodes(16_384))
    words = why_not(case, Layout(2048, 8, zero=1, recompute="full"))
    assert "Most are gradients, 189 GiB." in words
    assert why_not(case, Layout(64, 8, 32, zero=2)) == "64 × 8 × 32 fits."


def test_with_one_stage_a_device_keeps_the_scores_too():
    alone = CASE.memory(Layout(8, 2)).activations
    scores = 4 * SMALL.sequence * (SMALL.hidden + SMALL.vocabulary) / 2
    assert (
        alone == 8 * SMALL.kept_bytes(1, tensor=2, recompute="none") + scores
    )


def test_full_recomputation_holds_one_layer_besides():
    again = CASE.memory(Layout(2, 2, 4, 2, recompute="full")).activations
    kept = SMALL.kept_bytes(2, tensor=2, recompute="full")
    whole = SMALL.kept_bytes(2, tensor=2, recompute="none")
    assert again == pytest.approx(7 * kept + whole)


# -- seconds


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_pipeline_takes_the_closed_form_of_its_schedule(chunks):
    """Where no message takes time, and no device has more than another."""
    network = NoEnds(
        layers=8, hidden=256, heads=4, vocabulary=1000, sequence=128
    )
    case = Case(network, 64, nodes(4), host=None)
    layout = Layout(1, 1, 4, 2, chunks)
    block, *_, hop = case.parts(layout)
    found = case.seconds(layout)
    one = 2 * block.seconds
    name = "interleaved" if chunks > 1 else "1f1b"
    expected = makespan(
        name, 4, 32, forward=one / 3, backward=2 * one / 3, chunks=chunks
    )
    update = case._update(layout)
    hops = 2 * 3 * hop  # into and out of each of the other devices
    assert found.total == pytest.approx(expected + update + hops)


def test_the_ends_stand_where_layers_are_missing():
    seven = Case(replace(SMALL, layers=7), 64, nodes(4))
    eight = Case(SMALL, 64, nodes(4))
    layout = Layout(1, 1, 4)
    assert seven.blocks_of(layout) == eight.blocks_of(layout) == 2
    parts = eight.parts(layout)
    saved = (64 / 4) * parts.ends.seconds
    assert saved > 0
    assert seven.seconds(layout).total < eight.seconds(layout).total


def test_counts_are_divided_by_the_tensor_group():
    one, four = (layer_counts(SMALL, Layout(1, t)) for t in (1, 4))
    assert four.flops == one.flops / 4
    assert four.kept == one.kept / 4
    assert (one.num_sums, four.num_sums) == (0, 4)
    assert four.border == one.border / 4


@pytest.mark.parametrize("c", [2, 4])
def test_devices_that_share_a_sequence_do_and_keep_a_part(c):
    """Each has all keys of its queries: half of c-th of all pairs."""
    one, part = (layer_counts(SMALL, Layout(1, 2, context=n)) for n in (1, c))
    for name in ("flops", "kept", "border", "summed"):
        assert getattr(part, name) == getattr(one, name) / c
    assert part.parameters == one.parameters
    assert part.attention.forward == one.attention.forward / c
    assert part.attention.length == one.attention.length
    shares = {Fraction(*share(rank, k=c, balanced=True)) for rank in range(c)}
    assert shares == {Fraction(1, 2 * c)}
    ends = [ends_counts(SMALL, Layout(1, context=n)) for n in (1, c)]
    assert ends[1].flops == ends[0].flops / c
    assert ends[1].kept == ends[0].kept / c


def test_keys_and_values_of_whole_sequences_are_gathered():
    """By a list of the devices: t apart, on nodes of 8."""
    few = replace(SMALL, key_heads=2)
    case = Case(few, 64, nodes(32))
    whole = 2 * 2 * 3 * few.sequence * 64 * 2 / 2  # t = 2 share the heads
    ranks = range(0, 32, 2)
    sums = case.parts(Layout(1, 2, micro_batch=3, gathered="kept")).messages
    for gathered, again, times in (
        ("kept", "none", 1),
        ("again", "none", 2),
        ("again", "full", 3),
        ("kept", "full", 2),
        ("again", "selective", 2),
        ("kept", "selective", 2),
    ):
        layout = Layout(1, 2, 1, 3, 1, again, context=16, gathered=gathered)
        counts = case.parts(layout).block.counts
        assert counts.keys_and_values == whole
        found = case._sequence_messages(layout, counts)
        assert found == pytest.approx(
            times * library_seconds("allgather", ranks, whole, case.cluster)
            + library_seconds("reduce_scatter", ranks, whole, case.cluster)
        )
    assert sums > 0


def test_those_who_share_sequences_add_up_gradients_and_divide_state():
    case = Case(SMALL, 64, nodes(16))
    for zero in (0, 1, 2):
        alone = Layout(8, 2, zero=zero, overlap=False)
        shared = alone._replace(data=2, context=4)
        assert shared.num_devices == alone.num_devices
        assert case.memory(shared)[:3] == case.memory(alone)[:3]
        once = alone._replace(micro_batch=8), shared._replace(micro_batch=32)
        found = [case.seconds(layout).gradients for layout in once]
        assert found[0] == found[1] > 0


def test_inputs_are_gathered_again_beside_a_product():
    """The gather is seen as far as the product takes less."""
    slow = replace(nodes(8), link=replace(nodes(8).link, bytes_per_second=1e9))
    for machine, seen in ((nodes(8), False), (slow, True)):
        case = Case(NETWORKS["7B"], 64, machine)
        kept, again = (
            case.parts(Layout(1, 8, gathered=gathered))
            for gathered in ("kept", "again")
        )
        one = even_seconds(
            "allgather",
            p=8,
            stride=1,
            n=again.block.counts.summed,
            cluster=machine,
        )
        h, f = 4096, 11_008
        hidden = [
            2 * 4096 * h * n / 8 / (0.65 * 0.81 * 989e12)
            for n in (3 * h, 2 * f)
        ]
        more = again.messages - kept.messages
        assert (more > 0) == seen
        if seen:
            assert more == pytest.approx(2 * one - sum(hidden), rel=1e-3)


@pytest.mark.parametrize(
    ("recompute", "more"), [("full", 4 / 3), ("none", 1.0)]
)
def test_full_recomputation_is_a_forward_more(recompute, more):
    plain = replace(SMALL, fused=False)
    base = layer_counts(plain, Layout(1)).flops
    found = layer_counts(plain, Layout(1, recompute=recompute)).flops
    assert found == pytest.approx(more * base)


def test_selective_recomputation_computes_the_scores_again():
    """Of the paper: the hardware's flops over the model's, 1 + s/6h."""
    plain = replace(SMALL, fused=False)
    base, again = (
        layer_counts(plain, Layout(1, recompute=r)).flops
        for r in ("none", "selective")
    )
    s, h = SMALL.sequence, SMALL.hidden
    assert again / base == pytest.approx(
        (1 + s / (6 * h) + s / (18 * h)) / (1 + s / (6 * h))
    )


def test_replicas_hide_their_gradients_behind_backward():
    fast = CASE.seconds(Layout(16, 1, 1, 4)).gradients
    seen = CASE.seconds(Layout(16, 1, 1, 4, overlap=False)).gradients
    assert 0 < fast < seen


def test_each_block_goes_round_the_ring_by_itself():
    """Two gathers and a reduction of each of eight blocks, twice a step."""
    layout = Layout(16, micro_batch=2, zero=3, overlap=False)
    block = CASE.parameters_of(layout) / 8
    seconds = (
        2
        * 8
        * (
            2
            * even_seconds(
                "allgather", p=16, stride=1, n=2 * block, cluster=CASE.cluster
            )
            + even_seconds(
                "reduce_scatter",
                p=16,
                stride=1,
                n=4 * block,
                cluster=CASE.cluster,
            )
        )
    )
    assert CASE.seconds(layout).gradients == pytest.approx(seconds)
    whole = CASE._sum("allgather", ranks=16, stride=1, n=2 * 8 * block)
    assert whole < 8 * CASE._sum("allgather", ranks=16, stride=1, n=2 * block)


def test_below_stage_2_gradients_are_one_message():
    number = CASE.parameters_of(Layout(16))
    plain = CASE.seconds(Layout(16, zero=0, overlap=False)).gradients
    ring = even_seconds(
        "allreduce", p=16, stride=1, n=4 * number, cluster=CASE.cluster
    )
    assert plain == ring
    told = replace(CASE, zero_messages=BY_TENSOR)
    for zero in (0, 1):
        layout = Layout(16, zero=zero)
        assert told.seconds(layout) == CASE.seconds(layout)


def test_a_message_for_each_tensor_pays_for_its_pieces():
    """11 gathers and 12 reductions of a block, each of 16 pieces of 8 µs."""
    told = replace(CASE, zero_messages=BY_TENSOR)
    whole = BY_TENSOR._replace(in_pieces=False)
    layout = Layout(16, micro_batch=4, zero=3, overlap=False)
    more = told.seconds(layout).gradients
    more -= replace(told, zero_messages=whole).seconds(layout).gradients
    assert more == pytest.approx(8 * 23 * 16 * 8e-6)


def test_without_overlap_all_hops_are_seen():
    layout = Layout(2, 2, 4, 2)
    hop = CASE.parts(layout).hop
    slow = CASE.seconds(layout._replace(overlap=False))
    assert CASE.seconds(layout).hops == 0
    assert slow.hops == pytest.approx(16 * 2 * hop)


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16])
def test_even_ranks_take_what_their_list_takes(stride):
    machine = nodes(64)
    ranks = range(0, 64, stride)
    for name in ("allreduce", "reduce_scatter", "allgather"):
        expected = library_seconds(name, ranks, 1e7, machine)
        found = even_seconds(
            name, p=len(ranks), stride=stride, n=1e7, cluster=machine
        )
        assert found == expected


# Kernels: zzc0721/torch-performance-test-data, issues 79 (H100), 140 (V100);
# triton-lang/triton, issue 6523 (A100): side -> TFLOP/s.
KERNELS = {
    ("h100", "bfloat16"): {1024: 176.62, 2048: 676.59, 4096: 788.72},
    ("h100", "float16"): {1024: 179.13, 2048: 645.12, 4096: 760.04},
    ("v100", "float16"): {1024: 57.30, 2048: 78.23, 4096: 95.73},
    ("a100", "float16"): {1024: 77.67, 2048: 143.4},
}


def misses(half):
    """Return the mean miss, with half of the rate at so many microseconds."""
    found = []
    for (name, dtype), rates in KERNELS.items():
        made = ACCELERATORS[name]
        peaks = made.flops_per_second
        made = replace(made, half_flops=half * 1e-6 * peaks["float32"])
        for side, rate in rates.items():
            counts = Counts(0, flops=2 * side**3, num_products=1)
            seconds = work(counts, made, dtype).seconds
            found.append(abs(seconds * rate * 1e12 / (2 * side**3) - 1))
    return sum(found) / len(found)


def test_small_products_are_slow_in_fast_dtypes_too():
    """4 µs of each dtype's peak are nearer than 4 µs of float32's."""
    ratio = 67 / 989  # of an H100's peaks
    assert misses(4.0) < 0.22
    assert misses(4.0 * ratio) > misses(4.0) + 0.07


@pytest.mark.parametrize(
    ("accelerator", "kernel", "forward", "backward"),
    [
        # Forward, blocks of 128 by 64 are computed: 128 · 16 · 17 / 2 scores
        # of them for 1,024 tokens. cuDNN's are assumed to be 128 by 128.
        ("a100", "", (128, 64, 0.67), (64, 128, 0.58)),
        ("h100", "", (128, 128, 0.57), (128, 128, 0.43)),
        ("h100", "flash", (128, 64, 0.35), (64, 128, 0.31)),
    ],
)
def test_attention_is_charged_for_its_scores_at_the_rate_of_its_kernel(
    accelerator, kernel, forward, backward
):
    made, length, expected = ACCELERATORS[accelerator], 1024, 0.0
    seen = torch.ones(length, length).tril().bool()
    for (queries, keys, part), times in ((forward, 2), (backward, 5)):
        tiles = seen.unfold(0, queries, queries).unfold(1, keys, keys)
        computed = tiles.flatten(2).any(2).double().mean().item()
        peak = made.flops_per_second["bfloat16"]
        expected += times * 1e15 * computed / (part * peak)
    attention = Attention(2e15, 5e15, 1, length, 128)
    found = work(
        Counts(0, attention=attention),
        made,
        "bfloat16",
        sustained=1.0,
        kernel=kernel,
    )
    assert found.products == pytest.approx(expected, rel=1e-4)


def test_a_run_is_planned_with_the_kernel_that_it_had():
    """FlashAttention-2 is slower on an H100 than what is taken today."""
    layout = Layout(16, micro_batch=4)
    today, flash, cudnn = (
        Case(SMALL, 64, nodes(16), host=None, attention=kernel)
        .seconds(layout)
        .products
        for kernel in ("", "flash", "cudnn")
    )
    assert today == cudnn < flash


def test_recomputation_computes_attention_forward_once_more():
    none, full = (
        layer_counts(SMALL, Layout(1, recompute=r)).attention
        for r in ("none", "full")
    )
    assert none.backward == full.backward == 2.5 * none.forward
    assert (full.forward, full.calls) == (2 * none.forward, 2)
    assert none.forward == 4 * SMALL.sequence**2 * SMALL.hidden
    assert layer_counts(replace(SMALL, fused=False), Layout(1)).attention == (
        Attention()
    )


def test_products_keep_a_part_of_their_rate_and_nothing_else_does():
    made = ACCELERATORS["h100"]
    for counts, kept in (
        (Counts(0, flops=1e15), 0.63),
        (Counts(0, attention=Attention(1e15, 1e15, 1, 128, 64)), 0.63),
        (Counts(0, memory_traffic=1e12), 1.0),
        (Counts(0, convolutions=(1e15, 1e15)), 1.0),
    ):
        short = work(counts, made, "bfloat16").seconds
        lasting = work(counts, made, "bfloat16", sustained=0.63).seconds
        assert short / lasting == pytest.approx(kept)


@pytest.mark.parametrize(
    ("accelerator", "kept"), [("a100", 0.87), ("h100", 0.65), ("v100", 1.0)]
)
def test_what_is_kept_belongs_to_the_run(accelerator, kept):
    """A case takes what long runs kept, unless it is told."""
    machine = cluster(8, accelerator)
    assert Case(SMALL, 64, machine).kept_rate == kept
    short = Case(SMALL, 64, machine, sustained=1.0)
    lasting = Case(SMALL, 64, machine, host=None)
    assert short.kept_rate == 1.0
    seconds = short.seconds(Layout(8)).products
    assert seconds <= lasting.seconds(Layout(8)).products
    assert (seconds == lasting.seconds(Layout(8)).products) == (kept == 1.0)


def test_a_case_of_another_network_counts_anew():
    """Not by what the first one has counted of the same layout."""
    layout = Layout(16)
    small = Case(SMALL, 64, nodes(16))
    small.parts(layout)
    large = replace(small, network=replace(SMALL, hidden=512))
    assert (
        large.parts(layout).block.seconds > small.parts(layout).block.seconds
    )


# -- the search


def test_the_search_finds_what_trying_all_finds():
    found = search(CASE)
    tried = [plan(CASE, layout) for layout in CASE.layouts()]
    fitting = [p for p in tried if p.memory.total <= CASE.room]
    assert found.num_layouts == len(tried)
    assert len(found.plans) == len(fitting)
    best = min(fitting, key=lambda p: p.seconds.total)
    assert found.plans[0].seconds.total == best.seconds.total
    totals = [p.seconds.total for p in found.plans]
    assert totals == sorted(totals)


def test_what_does_not_fit_is_not_planned():
    """405 billion parameters on one node."""
    found = search(Case(NETWORKS["405B"], 8, nodes(8)))
    assert found.plans == []
    assert found.smallest.memory.total > 80 * 2**30


def test_the_others_are_cut_in_other_ways():
    best, *rest = others(search(CASE).plans)
    cuts = [p.layout[:3] for p in (best, *rest)]
    assert len(set(cuts)) == len(cuts) > 3


def test_the_reasons_add_up():
    best, second, *_ = others(search(Case(SMALL, 64, nodes(64))).plans)
    more = second.seconds.total - best.seconds.total
    parts = [b - a for a, b in zip(best.seconds, second.seconds)]
    assert math.isclose(sum(parts), more)
    assert why(best, second).count(" × ") == 4


def test_a_tie_is_told_as_one():
    (best, *_) = search(CASE).plans
    words = why(best, best._replace(layout=best.layout._replace(zero=0)))
    assert "takes as long as" in words
    assert "[16 × 1 × 1" in words


def test_without_what_was_fitted_all_steps_on_h100s_are_too_short(monkeypatch):
    """By a fifth to two fifths, as the page says."""
    found = []
    monkeypatch.setitem(SUSTAINED, "h100", 1.0)
    for row in plans.sharded(load("plans")["foundry"], "h100"):
        found.append(row.measured / row.predicted - 1)
    assert len(found) == 17
    assert -0.42 < min(found) < -0.38
    assert -0.24 < max(found) < -0.20


def test_the_fitted_number_makes_its_row_right():
    rows = plans.sharded(load("plans")["foundry"], "h100")
    (fitted,) = [row for row in rows if row.kind == "fitted"]
    assert fitted.times_off < 1.005


def on_a100s(sustained):
    """Return the steps of the two sources, by what an A100 keeps."""
    return {
        "ZeRO-3": list(
            plans.sharded(load("plans")["foundry"], "a100", sustained)
        ),
        "2022": list(plans.of_2022(load("korthikanti2022"), sustained)),
    }


@pytest.mark.parametrize(
    ("names", "best"),
    [(["ZeRO-3", "2022"], 0.87), (["ZeRO-3"], 0.79), (["2022"], 0.94)],
)
def test_what_an_a100_keeps_is_the_best_for_two_sources_together(names, best):
    def rows_at(sustained):
        return [row for name in names for row in on_a100s(sustained)[name]]

    assert plans.best_sustained(rows_at) == best
    assert (best == SUSTAINED["a100"]) == (len(names) == 2)


@pytest.mark.parametrize(
    ("kept", "of_zero", "of_2022"),
    [
        (0.79, 1.05, 1.13),
        (0.87, 1.10, 1.06),
        (0.94, 1.17, 1.04),
        (1, 1.24, 1.06),
    ],
)
def test_the_factors_beside_the_number_are_these(kept, of_zero, of_2022):
    """The table in the comment on ``SUSTAINED``, and in the record."""
    found = [mean_factor(rows) for rows in on_a100s(kept).values()]
    assert [round(factor, 2) for factor in found] == [of_zero, of_2022]
    record = load("comparisons")["kept_rates"]
    (line,) = [line for line in record if line[0] == kept]
    assert line[1:] == pytest.approx(found, rel=1e-3)


def test_a_row_left_out_is_predicted_by_the_other_source():
    rows = plans.on_a100s(load)
    fitted = [row for row in rows if row.kind == "fitted"]
    tests = [row for row in rows if row.kind == "unseen"]
    assert len(fitted) == len(tests) == 15
    by_other = on_a100s(0.79)["2022"] + on_a100s(0.94)["ZeRO-3"]
    assert [row.predicted for row in tests] == [
        row.predicted for row in by_other
    ]


def test_the_record_holds_what_the_planner_says():
    """If not: python scripts/record.py comparisons."""
    all_rows = read(PLANS.parent / "comparisons.json")
    recorded = all_rows.of(*trust.PLANS, trust.WITH_EXPERTS).rows
    found = plans.comparisons(load)
    assert len(found) == len(recorded)
    for row, kept in zip(found, recorded):
        assert replace(row, predicted=0) == replace(
            kept, predicted=0, measured=row.measured
        )
        assert row.predicted == pytest.approx(kept.predicted, rel=1e-3)
        assert row.measured == pytest.approx(kept.measured, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "sequence", "batch", "count", "layouts", "kinds"),
    [
        ("175B of 2022", 2048, 1536, 3072, 4302, 114),
        ("7B", 131_072, 128, 64, 8063, 623),
    ],
)
def test_layouts_alike_are_computed_once(
    name, sequence, batch, count, layouts, kinds, monkeypatch
):
    """A search takes some ten milliseconds, since most of it is looked up."""
    made = []
    monkeypatch.setattr(
        "dpbook.planner.case.work",
        lambda *args, **others: made.append(args) or work(*args, **others),
    )
    network = replace(NETWORKS[name], sequence=sequence)
    found = search(Case(network, batch, nodes(count)))
    assert found.num_layouts == layouts
    # A block, and what is before and behind the blocks.
    assert len(made) == 2 * kinds


@pytest.mark.parametrize("card", ["h100", "h200", "b200"])
def test_in_float8_attention_takes_what_it_takes_in_bfloat16(card):
    """Products of matrices alone are in eight bits."""
    attention = Attention(1e12, 2.5e12, 1, length=4096, head_size=128)
    alone = Counts(0, attention=attention)
    eight, sixteen = (
        work(alone, ACCELERATORS[card], dtype).seconds
        for dtype in ("float8", "bfloat16")
    )
    assert eight == sixteen
    product = Counts(0, flops=1e13, num_products=1)
    eight, sixteen = (
        work(product, ACCELERATORS[card], dtype).seconds
        for dtype in ("float8", "bfloat16")
    )
    assert eight < 0.7 * sixteen
