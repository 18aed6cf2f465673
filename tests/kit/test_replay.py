"""Replayed times: the closed forms, the lower bound, and what they rest on."""

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.plans.alpha_beta import ideal_cluster
from dpkit.plans.costs import Rates
from dpkit.schedules.actions import Action, owners, parse
from dpkit.schedules.bubble import (
    FORMULAS,
    hops_waited,
    idle_of_ideal,
    idle_of_total,
    makespan,
)
from dpkit.schedules.named import (
    NAMED,
    by_name,
    gpipe,
    interleaved,
    naive,
    one_f_one_b,
    zero_bubble_h1,
)
from dpkit.schedules.replay import replay, times
from dpkit.sim.clock import DEFAULT, Clock

stages = st.integers(1, 8)
durations = st.floats(0.01, 10)


def length(schedule, seconds, hop=0.0):
    return max(end for _, end in times(schedule, seconds, hop).values())


def lower_bound(schedule, seconds, hop_seconds=0.0):
    """Return a time that no order of these actions can beat.

    A device cannot begin before a micro-batch has come through all stages
    before its first. Then it has all its work to do. Then the last gradient
    has to go back through those stages, unless the last work was a weight's.
    """
    # 1F1B of 3 stages and 4 micro-batches, 1 s each: device 2 waits 2 for its
    # first, works 8, and its last gradient goes back through 2 stages: 12.
    least = {}  # of any micro-batch
    for action in (action for actions in schedule for action in actions):
        key = action[:2]
        least[key] = min(least.get(key, inf), seconds(action))
    owner = owners(schedule)
    split = any(kind == "W" for _, kind in least)
    bound = 0.0
    for actions in filter(None, schedule):
        first = min(action.stage for action in actions)
        before = range(first)
        hops = sum(owner[s] != owner[s + 1] for s in before) * hop_seconds
        head = sum(least[s, "F"] for s in before) + hops
        tail = 0.0 if split else sum(least[s, "B"] for s in before) + hops
        bound = max(bound, head + sum(map(seconds, actions)) + tail)
    return bound


def close(value):
    return pytest.approx(value, rel=1e-9, abs=0)


@settings(max_examples=150)
@given(
    st.sampled_from(["naive", "gpipe", "1f1b"]),
    stages,
    st.integers(1, 20),
    durations,
    durations,
)
def test_closed_forms(name, p, m, forward, backward):
    found = length(NAMED[name](p, m), {"F": forward, "B": backward})
    assert found == close(
        makespan(name, p, m, forward=forward, backward=backward)
    )


@settings(max_examples=150)
@given(stages, st.integers(1, 4), st.integers(1, 4), durations, durations)
def test_closed_form_of_interleaving(p, groups, v, forward, backward):
    m = groups * p
    found = length(
        interleaved(p, m, chunks_per_device=v),
        {"F": forward / v, "B": backward / v},
    )
    assert found == close(
        makespan(
            "interleaved", p, m, forward=forward, backward=backward, chunks=v
        )
    )


@settings(max_examples=150)
@given(stages, st.integers(0, 12), durations, durations, st.floats(0.01, 1))
def test_closed_form_of_zero_bubble(p, more, forward, inputs, share):
    m, weights = p + more, share * min(forward, inputs)
    kinds = {"F": forward, "I": inputs, "W": weights}
    assert length(zero_bubble_h1(p, m), kinds) == close(
        makespan(
            "zb-h1",
            p,
            m,
            forward=forward,
            backward=inputs + weights,
            weights=weights,
        )
    )


@settings(max_examples=150)
@given(
    st.sampled_from([n for n, known in FORMULAS.items() if known.hops]),
    stages,
    st.integers(1, 4),
    durations,
    durations,
    durations,
)
def test_how_many_hops_a_step_waits(name, p, groups, forward, backward, hop):
    m = groups * p
    found = length(NAMED[name](p, m), {"F": forward, "B": backward}, hop)
    without = makespan(name, p, m, forward=forward, backward=backward)
    assert found == close(without + hop * hops_waited(name, p, m))


def test_schedules_whose_hops_have_no_formula():
    without = {name for name, known in FORMULAS.items() if not known.hops}
    assert without == {"interleaved", "zb-h1"}
    with pytest.raises(ValueError, match=r"schedule: 'zb-h1', known: naive, "):
        hops_waited("zb-h1", 4, 8)


def awaited(action, last):
    """Return the action whose result an action needs, or None."""
    stage, kind, micro_batch = action
    if kind == "W":
        return Action(stage, "I", micro_batch)
    if kind == "F":
        return Action(stage - 1, "F", micro_batch) if stage else None
    if stage == last:
        return Action(stage, "F", micro_batch)
    return Action(stage + 1, kind, micro_batch)


def on_clock(schedule, seconds, hop):
    """Run a schedule on devices whose launches take no time.

    Returns:
        Action -> the number of its device, its start and its end.
    """
    clock = Clock(ideal_cluster(len(schedule), Rates(0, 0)))
    spans = clock.record()
    owner = owners(schedule)
    done = {}  # action -> the mark behind it
    rows = [list(row) for row in schedule]
    while any(rows):
        for r, row in enumerate(rows):
            while row:
                need = awaited(row[0], last=len(owner) - 1)
                if need is not None and need not in done:
                    break
                action = row.pop(0)
                if need is not None and owner[need.stage] != r:
                    receive(clock, owner[need.stage], r, done[need], hop)
                lasting = seconds[action.kind]
                clock.compute(r, str(action), seconds=lasting)
                done[action] = clock.mark_stream(r, DEFAULT)
    clock.stop_recording()
    return {
        Action.parse(span.name): (span.device, span.start, span.end)
        for span in spans
        if span.stream == "compute"
    }


def receive(clock, source, target, sent, hop):
    """Copy what is done at a mark from device to device; then go on there."""
    # In streams of its own, so that no message waits for another.
    there = clock.new_stream(source)
    here = clock.new_stream(target)
    clock.mark_stream(source, there, sent)
    clock.current[source] = there
    clock.current[target] = here
    clock.copy(source, target, seconds=hop, num_bytes=1)
    clock.current[source] = DEFAULT
    clock.current[target] = DEFAULT
    clock.mark_stream(target, DEFAULT, clock.mark_stream(target, here))


# With hops: only where no two messages need a port at once.
@pytest.mark.parametrize(
    ("name", "p", "hop"),
    [
        ("naive", 3, 0.0),
        ("gpipe", 4, 0.0),
        ("1f1b", 4, 0.0),
        ("interleaved", 4, 0.0),
        ("zb-h1", 4, 0.0),
        ("naive", 3, 0.75),
        ("gpipe", 4, 0.75),
        ("1f1b", 2, 0.75),
        ("zb-h1", 2, 0.75),
    ],
)
def test_on_the_clock_each_action_takes_place_at_the_same_time(name, p, hop):
    stages = 2 * p if name == "interleaved" else p
    schedule = by_name(name, p, num_stages=stages, num_micro_batches=2 * p)
    seconds = {"F": 1.25, "B": 3.0, "I": 1.75, "W": 1.5}
    expected = {
        Action.parse(span.name): (
            span.device.replace("device ", "sim:"),
            close(span.start),
            close(span.end),
        )
        for span in replay(schedule, seconds, hop).spans
    }
    assert on_clock(schedule, seconds, hop) == expected


def test_the_published_sums_with_a_cost_per_hop():
    seconds = {"F": Fraction(1), "B": Fraction(2)}
    hop = Fraction(1, 5)
    assert length(gpipe(8, 64), seconds, hop) == Fraction("215.8")
    assert length(one_f_one_b(8, 64), seconds, hop) == Fraction("237.8")


def test_idle_by_both_denominators():
    p, m, both = 4, 8, 3.0
    timeline = replay(gpipe(p, m), {"F": 1.0, "B": 2.0})
    for times_of in timeline.summary().devices.values():
        idle = timeline.makespan - times_of.busy
        assert idle / (m * both) == close(idle_of_ideal(p, m))
        assert idle / timeline.makespan == close(idle_of_total(p, m))


@st.composite
def random_schedules(draw):
    """A right schedule: at each turn, any action that can be done."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    v = draw(st.integers(1, 2))
    kinds = draw(st.sampled_from(["FB", "FIW"]))
    order = [(s, "F") for s in range(p * v)]
    order += [(s, kinds[1]) for s in reversed(range(p * v))]
    ready = {(i, "F"): 0 for i in range(m)}  # how far each one has come
    schedule, late = [[] for _ in range(p)], []
    while ready or late:
        choices = sorted(ready) + sorted(late)
        choice = draw(st.sampled_from(choices))
        if choice in late:
            late.remove(choice)
            stage, i = choice
            schedule[stage % p].append(Action(stage, "W", i))
            continue
        stage, kind = order[ready[choice]]
        schedule[stage % p].append(Action(stage, kind, choice[0]))
        if kind == "I":
            late.append((stage, choice[0]))
        ready[choice] += 1
        if ready[choice] == len(order):
            del ready[choice]
    return schedule


@settings(max_examples=150)
@given(random_schedules(), st.data())
def test_nothing_beats_the_lower_bound(schedule, data):
    seconds = {a: data.draw(durations) for row in schedule for a in row}
    hop = data.draw(st.floats(0, 5))
    found = length(schedule, seconds.get, hop)
    assert found >= lower_bound(schedule, seconds.get, hop) * (1 - 1e-12)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 4), (4, 1), (3, 3), (5, 7)])
def test_gpipe_reaches_the_lower_bound_with_hops(p, m):
    bound = lower_bound(gpipe(p, m), lambda action: 1, hop_seconds=3)
    assert bound == 2 * (m + p - 1) + 2 * (p - 1) * 3
    assert bound == length(gpipe(p, m), lambda action: 1, hop=3)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 4), (4, 1), (3, 3), (5, 7)])
@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_equal_stages_reach_the_lower_bound(make, p, m):
    """With F = B = 1 that is 2 (m + p - 1) ticks."""
    bound = lower_bound(make(p, m), lambda action: 1)
    assert bound == 2 * (m + p - 1) == length(make(p, m), lambda action: 1)


@settings(max_examples=100)
@given(random_schedules(), st.data())
def test_actions_start_when_they_can(schedule, data):
    """On time, one after the other, and not before what they need."""
    seconds = {a: data.draw(durations) for row in schedule for a in row}
    hop = data.draw(st.floats(0, 5))
    found = times(schedule, seconds.get, hop)
    device_of = {a: r for r, row in enumerate(schedule) for a in row}
    last = max(a.stage for a in device_of)
    for row in schedule:
        free = 0.0
        for a in row:
            s, kind, i = a
            before = {
                "F": [Action(s - 1, "F", i)] * (s > 0),
                "W": [Action(s, "I", i)],
            }.get(kind, [Action(s, "F", i)])
            if kind in "BI" and s < last:
                before = [*before, Action(s + 1, kind, i)]
            arrivals = [
                found[b][1] + hop * (device_of[b] != device_of[a])
                for b in before
            ]
            assert found[a][0] == max([free, *arrivals])
            assert found[a][1] == found[a][0] + seconds[a]
            free = found[a][1]


def test_a_device_with_two_stages_sends_itself_nothing():
    """Two stages on one device: no hop between them."""
    schedule = parse("0F0 1F0 1B0 0B0")
    assert length(schedule, {"F": 1, "B": 1}, hop=100) == 4


def test_the_timeline():
    timeline = replay(naive(2, 1), {"F": 1.0, "B": 2.0}, 0.5, label="naive")
    assert [span.name for span in timeline.spans] == "0F0 1F0 1B0 0B0".split()
    assert timeline.spans[2].kind == "backward"
    assert timeline.makespan == 7.0
    assert timeline.label == "naive"
    devices = timeline.summary().devices
    assert devices["device 1"].busy == 3.0
    assert devices["device 1"].idle == 4.0


@pytest.mark.parametrize(
    ("seconds", "hop", "words"),
    [
        ({"F": 1.0, "B": -2.0}, 0.0, r"kind: 'B', seconds: .*-2.0"),
        ({"F": 1.0, "backward": 2.0}, 0.0, r"kind: 'backward'"),
        ({"F": 1.0, "B": 2.0}, -1.0, r"hop_seconds: -1.0"),
        ({"F": 1.0}, 0.0, r"no duration of .* \(kind: 'B'"),
    ],
)
def test_times_that_are_none(seconds, hop, words):
    with pytest.raises(ValueError, match=words):
        replay(gpipe(2, 2), seconds, hop)
    with pytest.raises(ValueError, match=words):
        times(gpipe(2, 2), seconds, hop)


def test_an_action_that_takes_less_than_no_time():
    with pytest.raises(ValueError, match=r"action: 0F0, seconds: -1"):
        replay(gpipe(2, 2), lambda action: -1.0)


@pytest.mark.parametrize(
    ("name", "p", "m", "weights"),
    [("interleaved", 3, 4, 0.0), ("zb-h1", 4, 3, 1.0), ("zb-h1", 3, 4, 1.6),
     ("zb-h1", 4, 8, 1.51), ("GPipe", 3, 4, 0.0)],
)  # fmt: skip
def test_what_has_no_formula(name, p, m, weights):
    words = rf"schedule: '{name}', devices: {p}, micro-batches: {m}"
    with pytest.raises(ValueError, match=words):
        makespan(name, p, m, forward=1.5, backward=3.0, weights=weights)


@pytest.mark.parametrize(
    ("forward", "inputs", "weights"), [(3.0, 1.0, 2.0), (1.0, 2.5, 1.5)]
)
def test_weights_that_take_longer_than_the_rest(forward, inputs, weights):
    """Longer than F, or than I: the formula would be wrong."""
    kinds = {"F": forward, "I": inputs, "W": weights}
    found = length(zero_bubble_h1(4, 8), kinds)
    wrong = 8 * sum(kinds.values()) + 3 * (forward + inputs - weights)
    assert found > wrong
    with pytest.raises(ValueError, match="no formula"):
        makespan(
            "zb-h1",
            4,
            8,
            forward=forward,
            backward=inputs + weights,
            weights=weights,
        )
