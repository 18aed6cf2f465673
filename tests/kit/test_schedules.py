"""Schedules: every action once, no deadlock, and the printed shapes."""

import pytest

from dpkit.schedules.actions import Action, most_in_flight, parse
from dpkit.schedules.bubble import in_flight
from dpkit.schedules.check import check
from dpkit.schedules.named import (
    NAMED,
    by_name,
    gpipe,
    interleaved,
    naive,
    one_f_one_b,
    zero_bubble_h1,
)


@pytest.mark.parametrize("p", range(1, 6))
@pytest.mark.parametrize("m", range(1, 10))
@pytest.mark.parametrize("make", [naive, gpipe, one_f_one_b, zero_bubble_h1])
def test_schedules_run_to_the_end(make, p, m):
    order = check(make(p, m), num_stages=p, num_micro_batches=m)
    kinds = "FIW" if make is zero_bubble_h1 else "FB"
    assert len(order) == len(set(order)) == p * m * len(kinds)


@pytest.mark.parametrize("p", range(1, 5))
@pytest.mark.parametrize("v", range(1, 4))
@pytest.mark.parametrize("groups", range(1, 4))
def test_interleaved_runs_to_the_end(p, v, groups):
    m = groups * p
    order = check(interleaved(p, m, chunks_per_device=v), p * v, m)
    assert len(set(order)) == 2 * p * v * m


@pytest.mark.parametrize("p", range(1, 6))
@pytest.mark.parametrize("m", range(1, 10))
@pytest.mark.parametrize("make", [naive, gpipe, one_f_one_b, zero_bubble_h1])
def test_micro_batches_in_flight(make, p, m):
    name = next(n for n, made in NAMED.items() if made is make)
    for r, actions in enumerate(make(p, m)):
        assert most_in_flight(actions) == in_flight(name, p, m, rank=r)


@pytest.mark.parametrize("p", range(1, 5))
@pytest.mark.parametrize("v", range(1, 4))
@pytest.mark.parametrize("groups", range(1, 4))
def test_chunks_in_flight(p, v, groups):
    m = groups * p
    for r, actions in enumerate(interleaved(p, m, chunks_per_device=v)):
        most = in_flight("interleaved", p, m, rank=r, chunks=v)
        assert most_in_flight(actions) == most


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0F0 0B0", "1F0 is missing"),
        ("0F0 0B0 0B0\n1F0 1B0", "0B0 is there 2 times"),
        ("0F0 0B0\n1F0 1B0\n2F0", r"2F0 is out of range .stages: 2"),
        ("0F0 0B0 0F1\n1F0 1B0", r"0F1 is out of range .*micro-batches: 1"),
        ("0F0 0B0\n1B0 1F0", "1B0 waits for 1F0, which comes after it"),
        ("0B0 0F0\n1F0 1B0", "0B0 waits for 0F0, which comes after it"),
        ("0F0 0I0 0W0\n1F0 1B0", "1I0 is missing"),
        ("0F0 0W0 0I0\n1F0 1I0 1W0", "0W0 waits for 0I0, which comes after"),
        ("0F0 0B0\n1F0 1I0 1W0", "0I0 is missing"),
        ("0F0 0I0 0W0 0B0\n1F0 1I0 1W0", "0B0 is done whole and in halves"),
        ("0F0 1B0\n1F0 0B0", "a stage is on two devices .stage: 0, dev.* 0 a"),
        ("0F0\n1F0", "0B0 is missing"),  # a backward loop that is empty
    ],
)
def test_wrong_schedules_are_refused(text, why):
    with pytest.raises(ValueError, match=why):
        check(parse(text), num_stages=2, num_micro_batches=1)


def test_a_warm_up_that_is_too_short_is_a_deadlock():
    """Stage s warms up with s + 1 micro-batches instead of p - s."""
    wrong = parse("""
        0F0 0B0 0F1 0B1 0F2 0B2
        1F0 1F1 1B0 1F2 1B1 1B2
    """)
    words = "1F1 on device 1 waits for 0F1, but device 0 waits at 0B0: neither"
    with pytest.raises(ValueError, match=words):
        check(wrong, num_stages=2, num_micro_batches=3)


def test_backwards_that_run_twice_and_never():
    """The first stage runs B5 to B7 twice, and the last never."""
    right = gpipe(4, 8)
    wrong = [right[0] + right[0][-3:], *right[1:3], right[3][:-3]]
    with pytest.raises(ValueError, match="0B5 is there 2 times"):
        check(wrong, 4, 8)
    with pytest.raises(ValueError, match="3B5 is missing"):
        check([*right[:3], right[3][:-3]], 4, 8)


def test_who_waits_for_an_action_that_its_device_has_too_late():
    """Two devices wait for 1F0, and the cause is where it stands."""
    words = "1B0 waits for 1F0, which comes after it on device 1"
    with pytest.raises(ValueError, match=words):
        check(parse("0F0 0B0\n1B0 1F0\n2F0 2B0"))


def test_by_name():
    assert by_name(
        "1f1b", 3, num_stages=3, num_micro_batches=4
    ) == one_f_one_b(3, 4)
    assert by_name(
        "interleaved", 2, num_stages=6, num_micro_batches=4
    ) == interleaved(2, 4, chunks_per_device=3)
    with pytest.raises(ValueError, match="schedule: '2f2b', known: 1f1b, "):
        by_name("2F2B", 2, num_stages=2, num_micro_batches=2)
    with pytest.raises(ValueError, match="stages: 5, devices: 2"):
        by_name("interleaved", 2, num_stages=5, num_micro_batches=2)
    with pytest.raises(ValueError, match=r"gpipe .*stages: 4, devices: 2"):
        by_name("gpipe", 2, num_stages=4, num_micro_batches=2)


@pytest.mark.parametrize("text", ["F0", "0X0", "1F", "-1F0", "0f0", "1F0.5"])
def test_what_is_no_action_is_refused(text):
    with pytest.raises(ValueError, match="not an action"):
        Action.parse(text)


@pytest.mark.parametrize("make", [naive, gpipe, one_f_one_b, zero_bubble_h1])
@pytest.mark.parametrize(("p", "m"), [(0, 1), (1, 0), (-1, 2)])
def test_counts_below_one_are_refused(make, p, m):
    with pytest.raises(ValueError, match=rf"stages: {p}, micro-batches: {m}"):
        make(p, m)


def test_what_interleaving_cannot_do():
    with pytest.raises(ValueError, match="micro-batches: 3, devices: 2"):
        interleaved(2, 3, chunks_per_device=2)
    with pytest.raises(ValueError, match="chunks_per_device: 0"):
        interleaved(2, 2, chunks_per_device=0)
