"""What plain modules and engines move and keep, by simulated steps."""

import json
import re
from dataclasses import replace

import pytest
import torch
from recorders.provenance import load

import dpkit
from dpbook.mesh.forecasts import forecast, forecasts, network_of
from dpbook.mesh.layouts import Layout
from dpbook.mesh.model import Llama, Sizes, loss_of
from dpbook.mesh.results import ordered_alike
from dpbook.mesh.runs import LARGE, NUM_ROWS, measure
from dpbook.plan_a_run.published_fsdp import fsdp_steps
from dpbook.planner import layouts as planner
from dpbook.planner import plain
from dpbook.planner.case import Case
from dpbook.planner.networks import NETWORKS
from dpbook.planner.peak import moments
from dpbook.planner.search import search
from dpbook.planner.work import SUM_BYTES, layer_counts
from dpkit import sim
from dpkit.machine import devices
from dpkit.sim.hardware.clusters import cluster
from tests.repository import ROOT

SIZES = Sizes(
    vocabulary=64,
    width=512,
    blocks=1,
    heads=8,
    key_heads=2,
    inner=1408,
    length=256,
)
ROWS = 4
TOKENS = ROWS * SIZES.length
MODEL = network_of(SIZES, plain=True)
COPIES = "split_with_sizes_copy", "_chunk_cat"


def one_step(blocks):
    """Return a step on one device: what it moves, launches and keeps."""
    sizes = replace(SIZES, blocks=blocks)
    with sim.machine(num_devices=1, backing="meta", hosts="per_device"):
        (device,) = devices(1, "sim")
        with torch.device("meta"):
            model = Llama(sizes).bfloat16()
        model = model.to_empty(device=device)
        tokens = torch.zeros(ROWS, sizes.length, dtype=torch.long).to(device)
        before = torch.sim.memory_allocated(device)
        with dpkit.sim.trace() as timeline:
            scores = model(tokens)
            kept = torch.sim.memory_allocated(device) - before
            loss_of(scores, tokens).backward()
    moved, launched = 0, 0
    for span in timeline.spans:
        if span.kind == "compute" and not span.flops:
            moved += span.num_bytes
            launched += 1
    return moved, launched, kept


@pytest.fixture(scope="module")
def a_block():
    """Return what a block adds to a step on one device."""
    return [
        two - one for one, two in zip(one_step(1), one_step(2), strict=True)
    ]


def test_what_a_block_moves(a_block):
    expected = TOKENS * plain.layer_bytes(MODEL, planner.Layout(1))
    assert a_block[0] == pytest.approx(expected, rel=0.01)


def test_what_a_block_launches(a_block):
    assert a_block[1] == sum(plain.KERNELS)


def test_what_a_block_keeps(a_block):
    expected = TOKENS * plain.kept_bytes(MODEL, planner.Layout(1))
    assert a_block[2] == pytest.approx(expected, rel=0.01)


def kernels_of(layout, sizes):
    """Return what the device of the first rank computes in a step."""
    timeline = measure(layout, sizes, ROWS, ranks_per_node=None).timeline
    return [
        span
        for span in timeline.spans
        if (span.device, span.stream) == ("sim:0", "compute")
    ]


def is_update(span):
    """Whether a kernel is one of the optimizer's, over a list of tensors."""
    return span.name.startswith("_foreach")


def added_by_a_block(layout):
    """Return what a block adds to the traffic of the first rank.

    Products, the copies of shards and the update do not count.
    """
    one, two = (
        sum(
            span.num_bytes
            for span in kernels_of(layout, replace(SIZES, blocks=blocks))
            if not (span.flops or span.name in COPIES or is_update(span))
        )
        for blocks in (1, 2)
    )
    return two - one


@pytest.mark.parametrize("recompute", [False, True])
def test_what_a_block_moves_on_a_group(recompute):
    layout = Layout(tp=2, bfloat16=True, recompute=recompute)
    again = "full" if recompute else "none"
    planned = planner.Layout(1, 2, recompute=again, gathered="kept")
    own = MODEL.layer_parameters / 2
    expected = TOKENS * plain.layer_bytes(MODEL, planned)
    # A group of one copies, too.
    copied = plain.copied_bytes(planned) - plain.COPY_GRADIENT
    expected += (plain.CAST_GRADIENT + copied) * own
    assert added_by_a_block(layout) == pytest.approx(expected, rel=0.02)


def test_an_update_moves_so_many_bytes():
    layout = Layout(fsdp=2, bfloat16=True)
    moved = sum(
        span.num_bytes for span in kernels_of(layout, SIZES) if is_update(span)
    )
    with torch.device("meta"):
        number = sum(p.numel() for p in Llama(SIZES).parameters())
    assert moved / (number / 2) == pytest.approx(plain.UPDATE_BYTES, rel=0.01)


# -- against the record


@pytest.fixture(scope="module")
def rows():
    return load("mesh")["layouts"]


def test_plain_modules_are_planned_as_engines_take_them(rows):
    """Times within 12 %, memory within 15 %; that of fused kernels is not."""
    fused, counted = forecasts(rows), forecasts(rows, plain=True)
    assert len(fused) == len(counted) == 10
    for row in rows:
        if row["name"] in fused:
            of_fused, of_plain = fused[row["name"]], counted[row["name"]]
            assert 1.25 < row["seconds"] / of_fused.seconds < 1.45
            assert 0.99 < row["seconds"] / of_plain.seconds < 1.12
            assert 1.05 < row["peak_bytes"] / of_fused.num_bytes < 2
            assert 0.94 < row["peak_bytes"] / of_plain.num_bytes < 1.15


@pytest.mark.parametrize(
    ("what", "of_fused", "of_plain", "pairs"),
    [("seconds", 29, 29, 29), ("bytes", 33, 41, 41)],
)
def test_pairs_that_the_planner_orders(rows, what, of_fused, of_plain, pairs):
    for plain_modules, alike in ((False, of_fused), (True, of_plain)):
        planned = forecasts(rows, plain=plain_modules)
        found = ordered_alike(rows, planned, what, apart=0.1)
        assert found == (alike, pairs)


def test_the_moments_of_the_docstring():
    """Of ``planner.peak``: the third of four is the fullest."""
    case = Case(network_of(LARGE, plain=True), NUM_ROWS, cluster(8, "a100"))
    layout = planner.Layout(8, micro_batch=2, zero=3, gathered="kept")
    held = case._held(layout, 0, case.parameters_of(layout))
    always = 12 * held.parameters / 8, 2 * held.ends
    assert [f"{n / 1e9:.1f}" for n in always] == ["1.5", "0.5"]
    found = [sum(always) + sum(each) for each in moments(held)]
    assert [f"{n / 1e9:.1f}" for n in found] == ["6.7", "6.4", "7.0", "6.8"]
    assert max(found) == forecast(Layout(fsdp=8), plain=True).num_bytes


def test_the_table_of_the_chapter_is_what_is_counted():
    """But for its last row, which only a tensor group has."""
    text = (ROOT / "book/mesh.ipynb").read_text("utf-8")
    rows = re.findall(r"^ *\"\| (.*) \| (.*) \| (.*) \|\\n\",$", text, re.M)
    *rows, last = [row for row in rows if re.search(r"\d (w|i)", row[2])]
    assert last[0].startswith("parts from a tensor group")
    sizes = network_of(LARGE, plain=True)
    names = {
        "width": sizes.hidden,
        "keys": sizes.keys,
        "inner": sizes.inner,
    }
    values = sum(
        int(times) * names[name]
        for row in rows
        for times, name in re.findall(r"(\d+) (width|keys|inner)", f"{row}")
    )
    moved = plain.layer_bytes(sizes, planner.Layout(1))
    assert moved == 2 * values
    assert f"{moved / 1e6:.1f} MB" == "2.0 MB"
    weights = SUM_BYTES * sizes.layer_parameters
    one = sizes.sequence
    fused = layer_counts(replace(sizes, plain=False), planner.Layout(1))
    assert f"{(fused.memory_traffic - weights) / one / 1e6:.1f} MB" == "0.4 MB"


def test_a_search_of_plain_modules_offers_what_engines_do():
    network = replace(NETWORKS["7B"], plain=True)
    case = Case(network, 16, cluster(8, "a100", "nvlink3"))
    tried = list(case.layouts())
    assert {each.gathered for each in tried} == {"kept"}
    assert {each.recompute for each in tried} == {"none", "full"}
    best, fused = (
        search(replace(case, network=each)).plans[0]
        for each in (network, NETWORKS["7B"])
    )
    assert best.seconds.total > fused.seconds.total
    assert best.memory.total < case.room


def test_other_models_are_refused():
    network = replace(NETWORKS["22B of 2022"], plain=True)
    with pytest.raises(ValueError, match=r"dropout: True, fused: False"):
        plain.layer_bytes(network, planner.Layout(8))


def test_selective_recomputation_is_refused():
    with pytest.raises(ValueError, match=r"\(recompute: selective\)"):
        plain.layer_bytes(MODEL, planner.Layout(8, recompute="selective"))


ALONE, GROUPS = planner.Layout(64), planner.Layout(8, 8)


@pytest.mark.parametrize(
    ("layout", "is_plain"),
    [
        (ALONE._replace(zero=0), True),  # DDP
        (ALONE._replace(zero=3), True),  # FSDP
        (ALONE._replace(zero=3, recompute="full"), True),
        (ALONE._replace(zero=3, recompute="selective"), False),  # not counted
        (GROUPS._replace(zero=2), True),  # FSDP, and DTensor
        (GROUPS._replace(zero=1), False),  # Megatron-LM
        (planner.Layout(8, 1, 8, zero=2), False),
        (planner.Layout(4, 4, 4), False),
    ],
)
def test_which_programs_have_plain_kernels(layout, is_plain):
    eager = Case(NETWORKS["7B"], 1024, cluster(64, "h100"))
    assert eager.takes_plain(layout) == is_plain
    assert not replace(eager, host=None).takes_plain(layout)  # compiled
    for name in ("22B of 2022", "8x22B", "ResNet-50"):
        other = replace(eager, network=NETWORKS[name])
        assert not other.takes_plain(layout)
    for kernels in ("plain", "fused"):
        chosen = replace(eager, kernels=kernels)
        assert chosen.takes_plain(layout) == (kernels == "plain")


def test_plain_kernels_are_planned_where_they_are_taken():
    """Times and memory are those of a network that is plain by itself."""
    layout = ALONE._replace(zero=3, gathered="kept")
    machine = cluster(64, "h100", "nvlink4")
    fused, plain_modules, eager = (
        Case(NETWORKS["7B"], 1024, machine, kernels=kernels)
        for kernels in ("fused", "plain", "")
    )
    by_network = replace(fused, network=replace(fused.network, plain=True))
    for what in ("seconds", "memory"):
        found, expected, of_network = (
            getattr(case, what)(layout)
            for case in (eager, plain_modules, by_network)
        )
        assert found == expected == of_network
        assert found.total > 1.05 * getattr(fused, what)(layout).total


def test_a_search_offers_no_selective_layout_that_would_be_plain():
    case = Case(NETWORKS["7B"], 1024, cluster(64, "h100"))
    tried = list(case.layouts())
    by_engines = [x for x in tried if x.zero == 3]
    assert {x.recompute for x in by_engines} == {"none", "full"}
    assert {x.gathered for x in by_engines} == {"kept"}
    grids = [x for x in tried if x.tensor > 1 and x.zero == 1]
    assert {x.recompute for x in grids} == {"none", "selective", "full"}
    assert {x.gathered for x in grids} == {"again"}


PUBLISHED = json.loads((ROOT / "book/_data/plans.json").read_text())["fsdp2"]


def test_steps_by_fsdp_are_planned_in_plain_kernels():
    """As the chapter says: within 3 %, and fused by 7 to 18 % too fast."""
    steps = list(fsdp_steps(PUBLISHED))
    of_plain, of_fused = (
        [step.planned(kernels) / step.rate for step in steps]
        for kernels in ("", "fused")
    )
    assert all(abs(factor - 1) < 0.03 for factor in of_plain)
    assert all(1.07 < factor < 1.18 for factor in of_fused)
    assert [step.layout.num_devices for step in steps] == [64] * 3
