"""Experts in the planner: where they lie, what they keep and send."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dpbook.experts.runs import (
    INNER,
    NUM_EXPERTS,
    NUM_TOKENS,
    TOP,
    WIDTH,
    counts_by_expert,
    layer_run,
)
from dpbook.explore.planner import nodes_of
from dpbook.planner import experts
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Planned
from dpbook.planner.search import plan, search
from dpbook.planner.work import layer_counts, product_seconds
from dpkit.plans.library_costs import all_to_all_seconds
from dpkit.sim.hardware import ACCELERATORS
from tests.book.eager_layers import ExpertsLayer

MIXTRAL = NETWORKS["8x22B"]
ON_128 = Case(MIXTRAL, 256, nodes_of("h100", 128))
# Sizes of the layer whose steps the chapter on experts simulates.
LAYER = Planned(
    layers=1,
    hidden=WIDTH,
    heads=32,
    vocabulary=32_000,
    sequence=NUM_TOKENS,
    feed_forward=INNER,
    gated=True,
    tied=False,
    dropout=False,
    experts=NUM_EXPERTS,
    choices=TOP,
)


def test_parameters_are_those_that_were_published():
    """141 billion, of which a token meets 39, say its makers."""
    assert round(MIXTRAL.parameters / 1e9) == 141
    met = MIXTRAL.layers * MIXTRAL.used_parameters
    met += 2 * MIXTRAL.word_parameters
    assert round(met / 1e9) == 39


@pytest.mark.parametrize("pair", [(1, 1), (4, 1), (8, 1), (4, 2), (2, 4)])
def test_a_group_of_devices_has_all_experts_once(pair):
    """Device by device, as the table of the module has them."""
    e, u = pair
    t = max(u, 2)
    layout = Layout(8 // t, t, expert=e, expert_tensor=u)
    places = Counter()
    for device in range(8):
        place, part = divmod(device % (e * u), u)
        for expert in range(8 // e * place, 8 // e * (place + 1)):
            places[expert, part] += 1
    assert len(places) == 8 * u
    assert set(places.values()) == {layout.expert_copies}
    own = experts.own_parameters(MIXTRAL, layout)
    whole = 8 * MIXTRAL.mlp_parameters * layout.expert_copies
    assert own * 8 == pytest.approx(whole)


@pytest.mark.parametrize("u", [1, 2, 4])
def test_what_is_gathered_is_what_the_others_had(u):
    """Row by row: a token's choices on each of the u that share an expert."""
    layout = Layout(8 // 4, 4, expert=2, expert_tensor=u)
    had = {
        device: {(device, choice) for choice in range(MIXTRAL.choices)}
        for device in range(u)
    }
    of_all = set().union(*had.values())
    for own in had.values():
        numbers = len(of_all - own) * MIXTRAL.hidden / layout.tensor
        kept = experts.gathered_bytes(MIXTRAL, layout)
        assert kept == pytest.approx(2 * numbers)


def test_all_devices_together_have_each_parameter_as_often_as_is_said():
    for layout in ON_128.layouts():
        if layout.pipeline == 1:
            dense, of_experts = ON_128.shared_parameters(layout)
            own = dense.number / dense.copies
            own += of_experts.number / of_experts.copies
            assert own * 128 == pytest.approx(MIXTRAL.parameters)


def test_groups_fill_the_devices_of_a_stage():
    found = list(ON_128.layouts())
    for layout in found:
        stage = layout.data * layout.context * layout.tensor
        assert stage % (layout.expert * layout.expert_tensor) == 0
        assert 8 % layout.expert == 0
        assert layout.expert_tensor in (1, layout.tensor)
    groups = {(x.expert, x.expert_tensor) for x in found}
    assert {(8, 1), (4, 2), (8, 8), (1, 4)} <= groups
    # None is there twice.
    assert len(found) == len(set(found))
    dense = Case(NETWORKS["7B"], 256, nodes_of("h100", 128))
    assert {x.expert for x in dense.layouts()} == {1}


@pytest.mark.parametrize(
    ("model", "layout", "words"),
    [
        (MIXTRAL, Layout(8, expert=3), r"experts: 8, .* expert: 3"),
        (MIXTRAL, Layout(4, expert=8), "devices of a stage: 4"),
        (MIXTRAL, Layout(4, 4, expert=2, expert_tensor=2), "tensor: 4"),
        (MIXTRAL, Layout(8, recompute="selective"), "recompute: selective"),
        (replace(MIXTRAL, plain=True), Layout(8), "plain: True"),
        (
            MIXTRAL,
            Layout(4, 2, sequence_parallel=False),
            "sequence_parallel: False",
        ),
        (NETWORKS["7B"], Layout(8, expert=8), "no experts .*expert: 8"),
    ],
)
def test_what_is_not_counted_is_refused(model, layout, words):
    case = Case(model, 8, nodes_of("h100", layout.num_devices))
    with pytest.raises(ValueError, match=words):
        case.memory(layout)


@pytest.mark.slow
def test_rows_and_products_are_those_of_simulated_devices():
    """The layer of the chapter, whose eight experts four devices share.

    The planner takes the products of two experts as one, with half as many
    kernels; the difference is what these take to start.
    """
    layout = Layout(4, expert=4)
    run = layer_run(counts_by_expert())
    once = experts.row_bytes(LAYER, layout, NUM_TOKENS)
    sent = experts.num_exchanges(layout) * once * 3 / 4
    counts = 8 * NUM_EXPERTS * 3 // 4  # of rows, which are sent before
    found = run.sent(0, forward=True) + run.sent(0, forward=False)
    assert found == sent + counts
    h100 = ACCELERATORS["h100"]
    flops = 6 * NUM_TOKENS * TOP * LAYER.mlp_parameters
    spans = run.timeline.spans
    simulated = sum(
        span.end - span.start
        for span in spans
        if span.device == "sim:0" and span.name == "mm"
    )
    planned = product_seconds(
        flops, count=18, accelerator=h100, dtype="bfloat16", sustained=1.0
    )
    assert simulated == pytest.approx(planned, rel=0.01)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_an_all_to_all_sends_what_each_port_has_to(p):
    nodes = nodes_of("h100", 64)
    n = 1e9
    link = nodes.link
    rate = link.bytes_per_second * link.achieved * link.library_share
    expected = n * (p - 1) / p / rate
    found = all_to_all_seconds(p=p, stride=1, n=n, cluster=nodes)
    assert found == pytest.approx(expected, rel=0.02)
    # One of each node: by their ports to other nodes alone.
    net = nodes.network
    rate = net.bytes_per_second * net.achieved * net.library_share
    expected = n * (p - 1) / p / rate
    found = all_to_all_seconds(p=p, stride=8, n=n, cluster=nodes)
    assert found == pytest.approx(expected, rel=0.02)
    assert all_to_all_seconds(p=1, stride=1, n=n, cluster=nodes) == 0.0


def test_a_layer_keeps_what_autograd_saves():
    """Rows, gate, up, their product and outputs, for each choice.

    Eager SwiGLU saves one value more, which a fused kernel computes again,
    and ``index_add`` the rows that it adds up, of which it needs the shape.
    """
    tokens, width, inner = 64, 32, 128
    layer = ExpertsLayer(width, 4, inner)
    torch.nn.init.zeros_(layer.router.weight)
    saved = {}

    def pack(x):
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    x = torch.ones(1, tokens, width, requires_grad=True)
    weights = {p.data_ptr() for p in layer.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = layer.mlp(x)
    y.sum().backward()
    own = sum(size for place, size in saved.items() if place not in weights)
    values = own / 4 / tokens  # in float32
    model = Planned(
        layers=1,
        hidden=width,
        heads=4,
        vocabulary=10,
        sequence=tokens,
        feed_forward=inner,
        gated=True,
        experts=2,
        choices=2,
    )
    dense = replace(model, experts=0, choices=0, feed_forward=1)
    whole, narrow = (m.kept_bytes(1, recompute="none") for m in (model, dense))
    of_mlps = (whole - narrow) / 2 / tokens
    of_mlps += 3  # the narrow MLP that the other has
    one_more = 2 * inner + 2 * width
    small = 10 * 2  # weights and numbers of choices
    assert values - one_more == pytest.approx(of_mlps + width, abs=small)


def test_a_device_that_gathers_rows_for_an_expert_keeps_them():
    found = [
        layer_counts(MIXTRAL, Layout(64, 2, expert=e, expert_tensor=u)).kept
        for e, u in ((8, 1), (4, 2))
    ]
    rows = 2 * 4096 * 6144 * 2 / 2  # choices, tokens, h, bytes; half of them
    assert found[1] - found[0] == pytest.approx(rows)


def test_the_worked_example_of_rows_is_computed():
    for e, u, stays in ((8, 1, 1 / 8), (4, 2, 1 / 4)):
        layout = Layout(64, 2, expert=e, expert_tensor=u)
        counts = layer_counts(MIXTRAL, layout)
        assert counts.sent_rows == pytest.approx(50e6, rel=0.01)
        alone = all_to_all_seconds(
            p=e, stride=u, n=counts.sent_rows, cluster=ON_128.cluster
        )
        link = ON_128.cluster.link
        rate = link.bytes_per_second * link.achieved * link.library_share
        passing = (1 - stays) * counts.sent_rows / rate
        assert alone == pytest.approx(passing, abs=30e-6)


def test_only_experts_that_lie_elsewhere_cost_messages():
    def messages(**groups):
        return ON_128.parts(Layout(64, 2, **groups)).messages

    none = messages()
    assert messages(expert=8) > none
    assert messages(expert=4, expert_tensor=2) > messages(expert=4)
    # Groups of more than a node.
    wide = replace(MIXTRAL, experts=64)
    case = Case(wide, 256, ON_128.cluster)
    near, far = (case.parts(Layout(64, 2, expert=e)).messages for e in (8, 64))
    assert far - none > 5 * (near - none)


def test_of_plain_replicas_a_smaller_group_holds_more():
    """The more devices have all experts together, the less one holds."""
    totals = [
        ON_128.memory(Layout(128, expert=e, zero=1)).total
        for e in (1, 2, 4, 8)
    ]
    assert all(a > b for a, b in pairwise(totals))


def test_the_best_layout_keeps_rows_in_the_node():
    found = search(ON_128)
    best = found.plans[0].layout
    assert best.expert * best.expert_tensor <= 8
    assert found.plans[0] == plan(ON_128, best)
    assert f"e = {best.expert}" in str(best)


def test_rows_are_put_in_order_as_often_as_the_table_says():
    """Values moved forward, of h, for each token that a device has."""
    wide = replace(MIXTRAL, experts=64, choices=8, feed_forward=2048)
    for model, e, u, values in (
        (MIXTRAL, 8, 1, 2 * 2 + 3),
        (MIXTRAL, 4, 1, 2 * 2 + 4 * 2 + 3),
        (MIXTRAL, 4, 2, 2 * 2 + 8 * 2 + 3),
        (wide, 8, 8, 2 * 8 + 32 * 8 + 9),
    ):
        t = max(u, 2)
        layout = Layout(64, t, expert=e, expert_tensor=u)
        moved = experts.moved_bytes(model, layout) * t
        assert moved == 2 * values * model.hidden


def test_recomputation_sends_rows_once_more():
    """Six times in place of four, and each is launched."""
    once, twice = (
        Layout(64, 2, expert=4, expert_tensor=2, recompute=recompute)
        for recompute in ("none", "full")
    )
    seconds = [
        experts.exchange_seconds(layout, 50e6, ON_128.cluster)
        for layout in (once, twice)
    ]
    assert seconds[1] == pytest.approx(1.5 * seconds[0])
    alone = {
        layout: layer_counts(
            replace(MIXTRAL, experts=2, choices=2),
            layout._replace(expert=1, expert_tensor=1),
        ).launches.forward.kernels
        for layout in (once, twice)
    }
    for layout, count in ((once, 8), (twice, 12)):
        kernels = layer_counts(MIXTRAL, layout).launches.forward.kernels
        assert kernels - alone[layout] == count


def test_a_layer_of_experts_has_half_of_the_sums():
    """Attention alone is summed, and gathered again, by a tensor group."""
    dense = replace(MIXTRAL, experts=0, choices=0)
    layout = Layout(64, 2)
    with_experts, without = (
        layer_counts(model, layout) for model in (MIXTRAL, dense)
    )
    assert with_experts.num_sums * 2 == without.num_sums
    assert with_experts.hiding_flops == without.hiding_flops[:1]


def test_what_nothing_divides_is_counted_once():
    """Where each expert is on one device, ZeRO divides all else alone."""
    layout = Layout(4, 2, 16, chunks=4, expert=8, zero=2)
    assert layout.expert_copies == 1
    counts = ON_128.parts(layout).block.counts
    of_experts = counts.expert_parameters
    rank = ON_128.fullest(layout)
    rest, kept = ON_128.shared_parameters(layout, rank)
    # Two blocks at work, of which replicas have the same.
    at_work = 2 * (counts.parameters - of_experts)
    expected = 4 * (rest.number / 4 + kept.number + at_work)
    assert ON_128.memory(layout).gradients == pytest.approx(expected)


def test_zero_is_searched_where_experts_alone_have_copies():
    found = [
        layout
        for layout in Case(MIXTRAL, 16, nodes_of("h100", 128)).layouts()
        if layout.cut == (1, 8, 16, 1, 2, 1)
    ]
    assert {layout.zero for layout in found} == {0, 1, 2}
    for layout in found:
        assert layout.expert_copies == 4


def test_groups_are_checked_whatever_was_asked_before():
    case = Case(MIXTRAL, 256, nodes_of("h100", 128))
    case.memory(Layout(16, 1, 8, expert=8))
    with pytest.raises(ValueError, match="devices of a stage: 4"):
        case.memory(Layout(4, 1, 32, expert=8))
    resnet = Case(NETWORKS["ResNet-50"], 64, nodes_of("h100", 8))
    with pytest.raises(ValueError, match="no experts"):
        resnet.seconds(Layout(8, expert=4))


@pytest.mark.parametrize(("count", "choices"), [(8, 0), (8, 9), (0, 2)])
def test_choices_are_of_experts_that_there_are(count, choices):
    words = f"experts: {count}, choices: {choices}"
    with pytest.raises(ValueError, match=words):
        replace(MIXTRAL, experts=count, choices=choices)


@pytest.mark.parametrize("groups", [{"expert": 0}, {"expert_tensor": 0}])
def test_groups_of_nothing_are_refused(groups):
    with pytest.raises(ValueError, match="fill the groups"):
        ON_128.memory(Layout(64, 2, **groups))
