"""The live figure of a ring of attention, and the formulas behind it."""

from itertools import product

import pytest
import torch.distributed as dist

import dpkit
from dpbook.explore.ring import (
    BALANCED,
    IN_ORDER,
    PALE,
    RING,
    WIRES,
    alone_seconds,
    hop_seconds,
)
from dpbook.formulas.ring_attention import (
    meetings,
    pieces_of,
    ring_steps,
    share,
)
from dpbook.long_sequences.runs import attention_run
from dpkit.plans.alpha_beta import ideal_cluster
from dpkit.plans.costs import Rates
from dpkit.sequence import BY_PRODUCTS
from dpkit.sequence.cut import pieces
from dpkit.sequence.ring import Ring
from dpkit.sim.clock import DEFAULT, Clock
from dpkit.sim.clock.record import SECOND
from dpkit.sim.timeline.drawing import VIOLET
from dpkit.units import show_seconds

BOTH = pytest.mark.parametrize("balanced", [False, True])
SIZES = pytest.mark.parametrize("k", [2, 3, 4, 7, 8])


def pairs_of_ring(balanced):
    """Return the pairs of each step, as the ring itself lists them."""
    ring = Ring(True, balanced, BY_PRODUCTS, None)
    mine = ring.pieces_after(0)
    return [
        [
            (mine[i], ring.pieces_after(step)[j], masked)
            for i, j, masked in ring.meetings(step)
        ]
        for step in range(dist.get_world_size())
    ]


@BOTH
@pytest.mark.parametrize("k", [2, 3, 5])
def test_pairs_are_those_of_the_ring(k, balanced):
    for rank, found in enumerate(dpkit.sim.launch(pairs_of_ring, k, balanced)):
        assert pieces_of(rank, k=k, balanced=balanced) == pieces(
            rank, k, balanced
        )
        for step, pairs in enumerate(found):
            assert pairs == list(meetings(rank, step, k=k, balanced=balanced))


@BOTH
@SIZES
def test_each_pair_that_is_seen_is_computed_once(k, balanced):
    found = [
        pair[:2]
        for rank, step in product(range(k), repeat=2)
        for pair in meetings(rank, step, k=k, balanced=balanced)
    ]
    num = 2 * k if balanced else k
    assert sorted(found) == [(q, j) for q in range(num) for j in range(q + 1)]


@BOTH
@SIZES
def test_shares_and_times_are_those_of_the_formulas(k, balanced):
    """Of what a device computes without a mask, twice what it takes alone."""
    alone = 3.0
    steps = ring_steps(k, balanced=balanced, alone=alone, hop=0.1)
    for r in range(k):
        expected = 1 / (2 * k) if balanced else (r + 1 / 2) / k**2
        part, whole = share(r, k=k, balanced=balanced)
        assert part / whole == pytest.approx(expected)
        busy = sum(s.end - s.start for s in steps if s.rank == r)
        assert busy == pytest.approx(2 * alone * expected)


@pytest.mark.parametrize(
    ("k", "tokens", "link"),
    [
        (4, 32_768, "nvlink3"),
        (4, 8192, "infiniband200"),
        (3, 8192, "infiniband200"),
        (4, 8192, "ethernet100"),
        (5, 8192, "nvlink3"),  # a rank waits for whom it sends to
        (8, 8192, "nvlink3"),
    ],
)
@BOTH
def test_ranks_end_when_they_do_on_the_clock(balanced, k, tokens, link):
    """Up to merging, which the formulas leave out."""
    way = "balanced ring" if balanced else "ring"
    run = attention_run(way, k * tokens, k, link=link)
    hop = hop_seconds(tokens, link)
    steps = ring_steps(
        k, balanced=balanced, alone=alone_seconds(k * tokens), hop=hop
    )
    merging = max(map(run.others, range(k)))
    for step in steps[-k:]:
        on_clock = run.forward[step.rank]
        assert step.end < on_clock < 1.01 * step.end + merging


def ring_on_clock(k, balanced, alone, hop):
    """Run the steps of a ring on devices whose launches take no time.

    Returns:
        Rank and step -> when the rank has computed. A block goes from a stream
        of its own to one of the next rank.
    """
    clock = Clock(ideal_cluster(k, Rates(0, 0)))
    sending, receiving = 1, 2
    num = 2 * k if balanced else k
    ends = {}
    for step in range(k):
        begun = [clock.mark_stream(r, DEFAULT) for r in range(k)]
        for r, other in ((r, (r + 1) % k) for r in range(k)):
            clock.mark_stream(r, sending, begun[r])
            clock.mark_stream(other, receiving, begun[other])
            clock.current[r] = sending
            clock.current[other] = receiving
            clock.copy(r, other, seconds=hop, num_bytes=1)
            clock.current[r] = DEFAULT
            clock.current[other] = DEFAULT
        for r in range(k):
            for pair in meetings(r, step, k=k, balanced=balanced):
                part = 1 if pair.masked else 2
                clock.compute(r, "pair", seconds=part * alone / num**2)
            ends[r, step] = clock.mark_stream(r, DEFAULT)
            for stream in (sending, receiving):
                mark = clock.mark_stream(r, stream)
                clock.mark_stream(r, DEFAULT, mark)
    return {at: clock.end_of(mark) / SECOND for at, mark in ends.items()}


@BOTH
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("hop", [0.0, 0.5, 4.0, 20.0])
def test_steps_end_when_they_do_on_a_free_clock(balanced, k, hop):
    """A step lasts seconds, and the clock rounds to picoseconds."""
    alone = 30.0
    found = ring_on_clock(k, balanced, alone, hop)
    told = {
        (step.rank, step.number): step.end
        for step in ring_steps(k, balanced=balanced, alone=alone, hop=hop)
    }
    assert told == pytest.approx(found, rel=1e-9, abs=0)


def test_the_start_is_that_of_the_chapter():
    shown = RING.ask()
    assert shown.sentence == (
        "4 devices take 294.5 ms and one takes 673.3 ms, 2.29 times as long. "
        "Rank 3 computes for 294.5 ms, rank 0 for 42.08 ms, and waits for "
        "the others."
    )
    assert shown.facts[4] == ("3", "7/32", "294.5 ms", "0 s")
    assert "; in step 0 rank 0: 0 sees 0; rank 1: 1" in shown.pictures[0].title


def test_with_head_and_tail_all_compute_for_as_long():
    shown = RING.ask(layout=BALANCED, step=1)
    assert "4.00 times as long. Each rank computes for" in shown.sentence
    assert [fact[1] for fact in shown.facts[1:]] == ["1/8"] * 4
    assert len({fact[2] for fact in shown.facts[1:]}) == 1
    words = "in step 1 rank 0: 7 sees 3, 4; rank 1: 1 sees 0 and 6 sees 0;"
    assert words in shown.pictures[0].title
    in_order = RING.ask(step=2).pictures[0].title
    assert "in step 2 rank 0: nothing; rank 1: nothing; rank 2" in in_order


def test_few_tokens_wait_for_messages():
    few = {"layout": BALANCED, "tokens": 8192, "link": "infiniband200"}
    shown = RING.ask(**few)
    steps = ring_steps(
        4,
        balanced=True,
        alone=alone_seconds(4 * 8192),
        hop=hop_seconds(8192, "infiniband200"),
    )
    busy = sum(s.end - s.start for s in steps if s.rank == 3)
    waits = max(s.end for s in steps) - busy
    assert shown.sentence.endswith(
        f"messages keep rank 3 waiting {show_seconds(waits)}."
    )
    # Four times as many tokens have 16 times the work, and hide them.
    many = RING.ask(**few | {"tokens": 32_768}).sentence
    assert "waiting" not in many
    assert "waiting" in RING.ask(tokens=1024, link="ethernet100").sentence


@pytest.mark.parametrize("layout", [IN_ORDER, BALANCED])
def test_the_squares_of_a_step_are_marked(layout):
    for step in range(3):
        picture, timeline = RING.ask(
            layout=layout, devices=3, step=step
        ).pictures
        balanced = layout == BALANCED
        count = sum(
            len(list(meetings(rank, step, k=3, balanced=balanced)))
            for rank in range(3)
        )
        assert picture.svg.count(f": step {step}</title>") == count
        # One more of each stands in the legend.
        assert picture.svg.count(f'fill="{VIOLET}"') == count + 1
        num = 6 if balanced else 3
        others = num * (num + 1) // 2 - count
        assert picture.svg.count(f'fill="{PALE}"') == others + 1
        assert f">step {step}</text>" in timeline.svg


@pytest.mark.parametrize(("layout", "bars"), [(IN_ORDER, 6), (BALANCED, 9)])
def test_a_rank_has_a_bar_for_each_step_in_which_it_computes(layout, bars):
    """Three ranks: in order 1, 2 and 3 steps. Behind the bars it is grey."""
    _, timeline = RING.ask(layout=layout, devices=3).pictures
    assert timeline.svg.count("<title>") == bars
    assert timeline.svg.count('-idle)"') == 3 + 1  # a row each, the legend


def test_a_step_that_is_not_there_is_refused_at_its_place():
    shown = RING.ask(devices=4, step=4)
    assert shown.refused.endswith("(step: 4, devices: 4)")
    assert shown.place == "step"
    odd = RING.ask(layout=BALANCED, tokens=1025)
    assert odd.place == "tokens"
    assert odd.refused.endswith("(tokens on each device: 1025)")
    assert not RING.ask(tokens=1025).refused


@pytest.mark.parametrize("link", WIRES)
def test_links_are_presets_between_which_messages_differ(link):
    assert 0 < hop_seconds(1024, link) < hop_seconds(2048, link)
