"""Checks of the exercises on collectives."""

from math import inf

from dpbook.exercises.verdict import Answer, require
from dpkit.plans import Plan, Rates, check_broadcast, count
from dpkit.plans.costs import seconds


def check_large_broadcast(answer: Answer) -> None:
    """A broadcast from rank 0 in which no port sends the whole twice."""
    for p in (2, 3, 4, 7, 8):
        plan = answer(p)
        why = f"{p} ranks: it returned {plan!r}, not a plan for them"
        require(isinstance(plan, Plan) and plan.world_size == p, why)
        check_broadcast(plan)
        n = 120 * p * max(1, plan.num_chunks)
        busiest = max(port.sent for port in count(plan, n)) / n
        why = f"{p} ranks: a port sends {busiest:.1f} times the buffer"
        require(busiest < 2, why)
        steps = len(plan.steps)
        enough = 2 * (p - 1)
        why = f"{p} ranks: it takes {steps} steps, where {enough} do"
        require(steps <= enough, why)


def check_size_that_splits(answer: Answer) -> None:
    """The size at which both take as long, within a byte."""
    for p in (4, 8, 16):
        for rates in (Rates(2e-6, 1e-11, 1e-12), Rates(3e-5, 8e-11)):
            found = answer(p, rates)
            case = f"{p} ranks, {rates}"
            why = f"{case}: it returned {found!r}, not a number of bytes"
            require(isinstance(found, (int, float)), why)
            whole = seconds("recursive_doubling", p, found, rates)
            parts = seconds("halving_doubling", p, found, rates)
            times = f"{1e6 * whole:.9g} and {1e6 * parts:.9g} µs"
            why = f"{case}: at {found:.9g} bytes they take {times}"
            less, more = (_gained(p, found + n, rates) for n in (-1, 1))
            require(less <= 0 <= more, why)


def _gained(p: int, n: float, rates: Rates) -> float:
    """Return the seconds that parts save of what the whole would take."""
    whole = seconds("recursive_doubling", p, n, rates)
    return whole - seconds("halving_doubling", p, n, rates)


def check_sends_first(answer: Answer) -> None:
    """A step of a ring ends, and in three rounds at the most."""
    for p in range(2, 10):
        firsts = [answer(rank, p) for rank in range(p)]
        why = f"{p} ranks: it returned {firsts}, not True or False for each"
        require(all(isinstance(first, bool) for first in firsts), why)
        rounds = _rounds(firsts)
        require(rounds < inf, f"{p} ranks: all wait for ever")
        why = f"{p} ranks: a step takes {rounds} rounds, where 3 do"
        require(rounds <= 3, why)


def _rounds(firsts: list[bool]) -> float:
    """Return in how many rounds a step of a ring ends; inf: it never does."""
    p = len(firsts)
    rounds = 0
    # 3 ranks, of which 0 and 2 send first: [S R], [R S], [S R]. In a round
    # each pair that is ready, one S and the other R, exchanges a message: 0
    # and 1, then 1 and 2, then 2 and 0.
    left = [[first, not first] for first in firsts]
    while any(left):
        ready = [
            rank
            for rank in range(p)
            if left[rank][:1] == [True] and left[(rank + 1) % p][:1] == [False]
        ]
        if not ready:
            return inf
        for rank in ready:
            del left[rank][0], left[(rank + 1) % p][0]
        rounds += 1
    return rounds
