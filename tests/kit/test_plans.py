"""Plans: that they are right, what they send, and that planted faults show.

The formulas of what each port sends are written here once more, by rank, for
buffers that the chunks do not divide and for folded ranks.
"""

import itertools
import re

import pytest
import torch

from dpkit.plans import direct, doubling, rings, trees
from dpkit.plans.algorithms import (
    ALLREDUCE,
    BROADCAST,
    REDUCE,
    allreduce_plan,
)
from dpkit.plans.blocking import (
    Call,
    calls,
    check_blocking,
    turns,
)
from dpkit.plans.check import (
    check_allreduce,
    check_broadcast,
    compare,
    everyone,
    follow,
)
from dpkit.plans.doubling import core
from dpkit.plans.plan import (
    Count,
    Message,
    Plan,
    bounds,
    count,
    num_elements,
    together,
)

SIZES = range(1, 18)
NODES = [(p, g) for p in SIZES for g in range(1, p + 1) if p % g == 0]
PLAIN = [name for name in ALLREDUCE if name != "hierarchical"]
CASES = [(name, p, None) for name in PLAIN for p in SIZES]
CASES += [("hierarchical", p, g) for p, g in NODES]


def lengths(p):
    """None, one, as many as ranks and their neighbours, and many."""
    return [0, 1, p - 1, p, p + 1, 2 * p + 1, 12345]


def lg(p):
    return next(i for i in range(10) if 2**i >= p)


def chunk(length, parts, i):
    """Elements of chunk i, by counting: the first ones have one more."""
    return sum(1 for e in range(length % parts) if e == i) + length // parts


# -- what is cut, and how it is written


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 17])
@pytest.mark.parametrize("length", [0, 1, 2, 6, 7, 40])
def test_chunks_are_cut_as_tensor_split_cuts(length, parts):
    cuts = torch.arange(length).tensor_split(parts)
    for first in range(parts):
        for stop in range(first + 1, parts + 1):
            start, end = bounds(length, parts, range(first, stop))
            wanted = torch.cat(cuts[first:stop]).tolist()
            assert list(range(start, end)) == wanted


def test_a_message_says_where_it_lands():
    assert list(Message(0, 1, 2, 4).landing) == [2, 3]
    assert list(Message(0, 1, 2, 4, lands=5).landing) == [5, 6]
    assert str(Message(0, 1, 2, 3, lands=5)) == "0 → 1: = 2 as 5"


def test_parts_that_run_together_have_as_many_steps():
    steps = [[Message(0, 1, 0, 1)]]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        together(steps, steps * 2)


# -- every plan does what it is for


@pytest.mark.parametrize(("name", "p", "g"), CASES)
def test_all_ranks_have_the_sum_of_all(name, p, g):
    check_allreduce(allreduce_plan(name, p, g))


def check_reduce(plan, root):
    """Require the sum of the root; others may have any."""
    compare(plan, lambda r, c: everyone(plan, c) if r == root else None)


def check_reduce_scatter(plan):
    """Require that rank r has the sum in its chunk r."""
    compare(plan, lambda r, c: everyone(plan, c) if r == c else None)


def check_allgather(plan):
    """Require that all have chunk r as rank r had it."""
    compare(plan, lambda rank, chunk: ((chunk, chunk),))


def check_alltoall(plan):
    """Require that chunk s of rank r is chunk r of rank s."""
    compare(plan, lambda rank, chunk: ((chunk, rank),))


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", ["star", "tree"])
def test_from_and_to_any_root(name, p):
    for root in range(p):
        check_reduce(Plan(name, p, 1, REDUCE[name](p, root)), root)
        check_broadcast(Plan(name, p, 1, BROADCAST[name](p, root)), root)


@pytest.mark.parametrize("p", SIZES)
def test_halves_of_an_allreduce(p):
    ranks, parts = range(p), [(i, i + 1) for i in range(p)]
    scatter = rings.ring_reduce_scatter(ranks, parts)
    gather = rings.ring_allgather(ranks, parts)
    check_reduce_scatter(Plan("ring", p, p, scatter))
    check_allgather(Plan("ring", p, p, gather))
    scatter = direct.direct_reduce_scatter(p)
    check_reduce_scatter(Plan("direct", p, p, scatter))
    check_allgather(Plan("direct", p, p, direct.direct_allgather(p)))
    if p == core(p):
        halving = doubling.halving_reduce_scatter(p)
        check_reduce_scatter(Plan("halving", p, p, halving))
        steps = doubling.doubling_allgather(p)
        check_allgather(Plan("doubling", p, p, steps))


@pytest.mark.parametrize("p", SIZES)
def test_all_to_all_transposes(p):
    check_alltoall(direct.pairwise(p))


def test_a_ring_of_some_ranks_in_another_order():
    ranks, parts = [4, 0, 3], [(0, 2), (2, 3), (3, 6)]
    steps = rings.ring_reduce_scatter(ranks, parts)
    held = follow(Plan("ring", 5, 6, steps))
    for rank, (first, stop) in zip(ranks, parts):
        for c in range(first, stop):
            assert [r for r, _ in held[rank][c]] == sorted(ranks)


OF_P_RANKS = {
    **{name: ALLREDUCE[name] for name in PLAIN},
    "hierarchical": lambda p: rings.hierarchical(p, 1),
    "tree_broadcast": trees.tree_broadcast,
    "pairwise": direct.pairwise,
}


@pytest.mark.parametrize("name", OF_P_RANKS)
def test_a_plan_needs_ranks(name):
    for p in (0, -2):
        with pytest.raises(ValueError, match=rf"below one \(p: {p}\)"):
            OF_P_RANKS[name](p)
    for p in (2.0, "3", True):
        with pytest.raises(TypeError, match=rf"whole number \(p: {p!r}\)"):
            OF_P_RANKS[name](p)


@pytest.mark.parametrize("g", [2.0, "2"])
def test_a_node_has_a_whole_number_of_ranks(g):
    with pytest.raises(TypeError, match=rf"\(ranks_per_node: {g!r}\)"):
        rings.hierarchical(8, g)


@pytest.mark.parametrize(
    "steps", [rings.ring_allgather, rings.ring_reduce_scatter]
)
def test_each_rank_of_a_ring_needs_a_part(steps):
    with pytest.raises(ValueError, match=r"below one \(ranks: 0\)"):
        steps([], [])
    for parts in ([(0, 1)], [(0, 1), (1, 2), (2, 3)]):
        told = rf"\(parts: {len(parts)}, ranks: 2\)"
        with pytest.raises(ValueError, match=told):
            steps([0, 1], parts)


@pytest.mark.parametrize("g", [0, -1, 3])
def test_nodes_must_be_full(g):
    with pytest.raises(ValueError, match=rf"ranks: 8, ranks_per_node: {g}\)"):
        allreduce_plan("hierarchical", 8, g)


def test_names_and_nodes_are_checked():
    with pytest.raises(ValueError, match="algorithm: 'rings', known: star"):
        allreduce_plan("rings", 4)
    with pytest.raises(ValueError, match=r"needs .*ranks_per_node: None"):
        allreduce_plan("hierarchical", 4)
    with pytest.raises(ValueError, match="'ring', ranks_per_node: 2"):
        allreduce_plan("ring", 4, 2)


# -- what each port sends, exactly: the chunks in each message, by rank


def star_port(p, rank):
    both = [(0, 1)] * (p - 1 if rank == 0 else 1)
    return both, both


def tree_port(p, rank):
    """A rank hears once from each child, and talks once to its parent."""
    low = (rank & -rank) if rank else 2**10
    children = [d for d in (1, 2, 4, 8, 16) if d < low and rank + d < p]
    both = [(0, 1)] * (len(children) + (rank > 0))
    return both, both


def others(p, *ranks):
    """All chunks but those of some ranks, each in a message of its own."""
    return [(c, c + 1) for r in ranks for c in range(p) if c != r % p]


def ring_port(p, rank):
    """It keeps its own sum to itself, and needs not send the next its own."""
    return others(p, rank, rank + 1), others(p, rank, rank - 1)


def direct_port(p, rank):
    """It sends others their parts, and all others its own; and the reverse."""
    both = others(p, rank) + [(rank, rank + 1)] * (p - 1)
    return both, both


def doubling_port(p, rank):
    q = core(p)
    steps = lg(q) + (rank + q < p) if rank < q else 1
    return [(0, 1)] * steps, [(0, 1)] * steps


def halving_port(p, rank):
    """Blocks of 1, 2, 4, … chunks: mine, and of the one it exchanges with."""
    q = core(p)
    whole = [(0, q)] if rank >= q or rank + q < p else []
    if rank >= q:
        return whole, whole
    mine, theirs = [], []
    for size in (2**i for i in range(lg(q))):
        for r, blocks in ((rank, mine), (rank ^ size, theirs)):
            first = r // size * size
            blocks.append((first, first + size))
    both = mine + theirs + whole  # theirs while adding, mine while spreading
    return both, both


PORTS = {
    "star": star_port,
    "tree": tree_port,
    "direct": direct_port,
    "ring": ring_port,
    "recursive_doubling": doubling_port,
    "halving_doubling": halving_port,
}


def hierarchical_port(p, g, rank):
    """A ring inside of parts of the node, a ring across of chunks of one."""
    k = p // g
    node, place = divmod(rank, g)

    def inside(i):
        return [(c * k, c * k + k) for c in range(g) if c != i % g]

    def across(i):
        return [(place * k + c, place * k + c + 1) for c in range(k)
                if c != i % k]  # fmt: skip

    return tuple(
        inside(place) + inside(place + i) + across(node) + across(node + i)
        for i in (1, -1)
    )


def counted(plan, n, ports):
    """Count what messages carry; those that carry nothing are not sent."""
    found = []
    for sent, received in ports:
        sizes = [
            [sum(chunk(n, plan.num_chunks, c) for c in range(*m)) for m in ms]
            for ms in (sent, received)
        ]
        messages = [sum(size > 0 for size in some) for some in sizes]
        found.append(Count(*map(sum, sizes), *messages))
    return found


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", PLAIN)
def test_elements_and_messages_of_each_port(name, p):
    plan = allreduce_plan(name, p)
    ports = (
        [PORTS[name](p, rank) for rank in range(p)] if p > 1 else [[[]] * 2]
    )
    for n in lengths(p):
        assert count(plan, n) == counted(plan, n, ports), n


@pytest.mark.parametrize(("p", "g"), NODES)
def test_elements_and_messages_of_each_port_in_nodes(p, g):
    plan = allreduce_plan("hierarchical", p, g)
    ports = [hierarchical_port(p, g, rank) for rank in range(p)]
    for n in lengths(p):
        assert count(plan, n) == counted(plan, n, ports), n


@pytest.mark.parametrize("p", range(2, 18))
def test_a_ragged_ring_sends_all_twice_but_two_chunks(p):
    for n in lengths(p):
        for rank, port in enumerate(count(rings.ring(p), n)):
            own, after, before = (
                chunk(n, p, (rank + i) % p) for i in (0, 1, -1)
            )
            assert port.sent == 2 * n - own - after
            assert port.received == 2 * n - own - before


@pytest.mark.parametrize(("p", "g"), NODES)
def test_across_nodes_each_port_sends_a_share_of_a_share(p, g):
    plan, n = allreduce_plan("hierarchical", p, g), 12 * p
    across = [m for m in plan.messages if m.source // g != m.target // g]
    for rank in range(p):
        sent = sum(
            num_elements(plan, m, n) for m in across if m.source == rank
        )
        assert sent * p == 2 * (p // g - 1) * n


@pytest.mark.parametrize("p", SIZES)
def test_elements_of_each_port_in_all_to_all(p):
    plan = direct.pairwise(p)
    for n in (0, p, 7 * p):
        part, messages = (p - 1) * n // p, (p - 1) * (n > 0)
        assert count(plan, n) == [Count(part, part, messages, messages)] * p


STEPS = {
    "star": lambda p: 2 * (p - 1),
    "tree": lambda p: 2 * lg(p),
    "direct": lambda p: 2 * (p - 1),
    "ring": lambda p: 2 * (p - 1),
    "recursive_doubling": lambda p: lg(core(p)) + 2 * (core(p) < p),
    "halving_doubling": lambda p: 2 * lg(core(p)) + 2 * (core(p) < p),
}


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", PLAIN)
def test_steps_and_messages(name, p):
    plan = allreduce_plan(name, p)
    assert len(plan.steps) == STEPS[name](p)
    q, surplus = core(p), p - core(p)
    total = {
        "star": 2 * (p - 1),
        "tree": 2 * (p - 1),
        "direct": 2 * p * (p - 1),
        "ring": 2 * p * (p - 1),
        "recursive_doubling": q * lg(q) + 2 * surplus,
        "halving_doubling": 2 * q * lg(q) + 2 * surplus,
    }[name]
    assert len(plan.messages) == total
    sends = [port.sends for port in count(plan, p)]
    assert sum(sends) == total
    if name in ("ring", "direct"):
        assert sends == [2 * (p - 1)] * p


@pytest.mark.parametrize(("p", "g"), NODES)
def test_steps_and_messages_in_nodes(p, g):
    plan = allreduce_plan("hierarchical", p, g)
    steps = 2 * (g - 1) + 2 * (p // g - 1)
    assert len(plan.steps) == steps
    assert len(plan.messages) == p * steps


# -- planted faults


def whole_ring(p):
    """Send the whole tensor around, as a ring that saves no bytes does."""
    around = [(rank, (rank + 1) % p) for rank in range(p)]
    del around[-1]
    add = [[Message(s, t, 0, 1, adds=True)] for s, t in around]
    back = [[Message((p - 1 + i) % p, i, 0, 1)] for i in range(p - 1)]
    return Plan("whole ring", p, 1, add + back)


@pytest.mark.parametrize("p", [3, 4, 9])
def test_a_ring_of_whole_tensors_is_right_and_sends_too_much(p):
    plan, n = whole_ring(p), 12 * p
    check_allreduce(plan)  # a test of the sum passes
    found = max(c.sent for c in count(plan, n))
    assert found == 2 * n > 2 * (p - 1) * n // p


def exchanged_ring(p):
    """All ranks send what arrived last on to the next: p buffers, no sums of
    parts. It needs a buffer apart, so only its messages can be counted."""
    steps = [
        [Message(rank, (rank + 1) % p, 0, 1) for rank in range(p)]
        for _ in range(2 * (p - 1))
    ]
    return Plan("exchanged ring", p, 1, steps)


@pytest.mark.parametrize("p", [2, 4, 9])
def test_a_ring_of_whole_tensors_in_all_steps_shows_in_bytes(p):
    n = 12 * p
    found = [c.sent for c in count(exchanged_ring(p), n)]
    assert found == [2 * (p - 1) * n] * p
    assert found[0] == p * count(rings.ring(p), n)[0].sent


@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_dropped_remainder_shows(p):
    """Chunks of numel // p leave the last elements out: a chunk too many."""
    right = rings.ring(p)
    plan = Plan("numel // p", p, p + 1, right.steps)
    with pytest.raises(ValueError, match=rf"chunk: {p}, it holds: chunk {p}"):
        check_allreduce(plan)


@pytest.mark.parametrize("p", [3, 4, 9])
def test_a_chunk_off_by_one_shows(p):
    """The second round begins with the chunk that is not summed up yet."""
    half = p - 1
    steps = list(rings.ring(p).steps)
    steps[half:] = [
        [
            m._replace(first=(m.first - 1) % p, stop=(m.first - 1) % p + 1)
            for m in step
        ]
        for step in steps[half:]
    ]
    with pytest.raises(ValueError, match="not the sum of all"):
        check_allreduce(Plan("off by one", p, p, steps))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("p", [2, 3, 6])
def test_an_addition_made_twice_shows(name, p):
    plan = allreduce_plan(name, p)
    steps = [plan.steps[0], *plan.steps]
    with pytest.raises(ValueError, match="added more than once"):
        check_allreduce(Plan("twice", p, plan.num_chunks, steps))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("p", [2, 3, 6])
def test_a_message_left_out_shows(name, p):
    plan = allreduce_plan(name, p)
    for number, step in enumerate(plan.steps):
        steps = [*plan.steps]
        steps[number] = step[1:]
        with pytest.raises(ValueError, match=r"plan: (less|.*once)"):
            check_allreduce(Plan("less", p, plan.num_chunks, steps))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ([Message(0, 0, 0, 1)], "two ranks and some chunks of the plan"),
        ([Message(0, 3, 0, 1)], "two ranks and some chunks of the plan"),
        ([Message(-1, 0, 0, 1)], "two ranks and some chunks of the plan"),
        ([Message(0, 1, 1, 1)], "two ranks and some chunks of the plan"),
        ([Message(0, 1, 1, 5)], "two ranks and some chunks of the plan"),
        (
            [Message(0, 1, 0, 2, lands=3)],
            "two ranks and some chunks of the plan",
        ),
        ([Message(0, 1, 0, 1), Message(0, 2, 0, 1)], "sends more than once"),
        ([Message(0, 1, 0, 1), Message(2, 1, 1, 2)], "receives more than on"),
    ],
)
def test_a_step_that_cannot_be_is_refused(step, why):
    with pytest.raises(ValueError, match=why):
        follow(Plan("wrong", 3, 4, [step]))


def test_each_check_names_the_place():
    star = Plan("star", 3, 1, trees.star_reduce(3, root=1))
    check_reduce(star, root=1)
    with pytest.raises(ValueError, match=r"plan: star, rank: 0, chunk: 0"):
        check_reduce(star, root=0)
    with pytest.raises(ValueError, match="not chunk 0 of rank 2"):
        check_broadcast(Plan("none", 3, 1, []), root=2)
    with pytest.raises(ValueError, match="not chunk 1 of rank 1"):
        check_allgather(Plan("none", 2, 2, []))
    with pytest.raises(ValueError, match="not chunk 0 of rank 1"):
        check_alltoall(Plan("none", 2, 2, []))
    with pytest.raises(ValueError, match="rank: 0, chunk: 0"):
        check_reduce_scatter(Plan("none", 2, 2, []))


# -- sends that block


@pytest.mark.parametrize(("name", "p", "g"), CASES)
def test_no_plan_hangs_when_sends_block(name, p, g):
    plan = allreduce_plan(name, p, g)
    orders = calls(plan)
    check_blocking(orders)
    messages = [c.message for order in orders for c in order if c.sends]
    assert sorted(map(str, messages)) == sorted(map(str, plan.messages))


@pytest.mark.parametrize("p", SIZES)
def test_all_to_all_does_not_hang_either(p):
    check_blocking(calls(direct.pairwise(p)))


def first_send(plan):
    """Each rank sends first, then receives, in each step."""
    orders = [[] for _ in range(plan.world_size)]
    for number, step in enumerate(plan.steps):
        for sends in (True, False):
            for m in step:
                rank = m.source if sends else m.target
                orders[rank].append(Call(sends, m, number))
    return orders


@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_ring_in_which_all_send_first_hangs(p):
    with pytest.raises(ValueError, match="wait for each other") as raised:
        check_blocking(first_send(rings.ring(p)))
    assert str(raised.value).count("to send to") == p


def test_a_star_in_which_all_send_first_does_not():
    check_blocking(first_send(trees.star(5)))


def test_a_rank_that_never_receives_is_named():
    m = Message(0, 2, 0, 1)
    orders = [[Call(True, m, 0)], [], []]
    with pytest.raises(ValueError, match=r"other \(rank 0: to send to 2\)"):
        check_blocking(orders)
    orders = [[], [], [Call(False, m, 0)]]
    with pytest.raises(ValueError, match="rank 2: to receive from 0"):
        check_blocking(orders)


@pytest.mark.parametrize(("name", "p", "g"), CASES)
def test_in_a_turn_each_rank_is_busy_once(name, p, g):
    for step in allreduce_plan(name, p, g).steps:
        divided = turns(step)
        assert sorted(itertools.chain(*divided)) == sorted(step)
        assert len(divided) <= 3
        for turn in divided:
            ends = [rank for m in turn for rank in (m.source, m.target)]
            assert len(set(ends)) == len(ends)


def test_plans_are_told_line_by_line():
    text = str(rings.ring(3))
    assert text.splitlines()[0] == "ring: ranks 3, chunks 3, steps 4"
    assert len(re.findall("→", text)) == 12
