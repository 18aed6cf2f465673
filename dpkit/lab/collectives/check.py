"""The checks of the exercises on collectives."""

from math import inf

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import Answer, require, require_sent
from dpkit.machine import devices
from dpkit.theory.collectives.check import check_broadcast
from dpkit.theory.collectives.costs import Rates, seconds
from dpkit.theory.collectives.plans import Plan, count


def check_large_broadcast(answer: Answer) -> None:
    """A broadcast from rank 0 in which no port sends the whole twice."""
    for p in (2, 3, 4, 7, 8):
        plan = answer(p)
        words = f"{p} ranks: it returned {plan!r}, not a plan for them"
        require(isinstance(plan, Plan) and plan.world_size == p, words)
        check_broadcast(plan)
        n = 120 * p * max(1, plan.num_chunks)
        busiest = max(port.sent for port in count(plan, n)) / n
        words = f"{p} ranks: a port sends {busiest:.1f} times the buffer"
        require(busiest < 2, words)
        steps, enough = len(plan.steps), 2 * (p - 1)
        words = f"{p} ranks: it takes {steps} steps, where {enough} do"
        require(steps <= enough, words)


def check_size_that_splits(answer: Answer) -> None:
    """The size at which both take as long, within a byte."""
    for p in (4, 8, 16):
        for rates in (Rates(2e-6, 1e-11, 1e-12), Rates(3e-5, 8e-11)):
            found, case = answer(p, rates), f"{p} ranks, {rates}"
            words = f"{case}: it returned {found!r}, not a number of bytes"
            require(isinstance(found, (int, float)), words)
            whole = seconds("recursive_doubling", p, found, rates)
            parts = seconds("halving_doubling", p, found, rates)
            times = f"{1e6 * whole:.1f} and {1e6 * parts:.1f} µs"
            words = f"{case}: at {found:.0f} bytes they take {times}"
            require(abs(whole / parts - 1) < 1e-3, words)


def check_sends_first(answer: Answer) -> None:
    """A step of a ring ends, and in three rounds at the most."""
    for p in range(2, 10):
        firsts = [answer(rank, p) for rank in range(p)]
        words = f"{p} ranks: it returned {firsts}, not True or False for each"
        require(all(isinstance(first, bool) for first in firsts), words)
        rounds = _rounds(firsts)
        require(rounds < inf, f"{p} ranks: all wait for ever")
        words = f"{p} ranks: a step takes {rounds} rounds, where 3 do"
        require(rounds <= 3, words)


def _rounds(firsts: list[bool]) -> float:
    """Return in how many rounds a step of a ring ends; inf: it never does."""
    p, rounds = len(firsts), 0
    # 3 ranks, of which 0 and 2 send first: [S R], [R S], [S R]. In a round
    # each pair that is ready, S beside R, exchanges a message: 0 and 1, then
    # 1 and 2, then 2 and 0.
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


def check_clip_shards(answer: Answer) -> None:
    """The norm of the whole, from the shards, in a few bytes."""
    generator = torch.Generator().manual_seed(0)
    for k, length in ((1, 5), (2, 8), (3, 2), (5, 303)):
        ranks = devices(k, "sim")
        whole = torch.randn(length, generator=generator).double()
        norm = float(whole.norm())
        for max_norm in (0.5 * norm, 2 * norm):
            parts = whole.tensor_split(k)
            shards = [x.to(d, copy=True) for x, d in zip(parts, ranks)]
            given = list(shards)
            with Traffic() as traffic:
                answer(shards, max_norm)
            found = torch.cat([shard.cpu() for shard in given])
            clipped = min(1.0, max_norm / norm) * whole
            case = f"{length} numbers of norm {norm:.2f} on {k} devices"
            words = f"the shards have norm {float(found.norm()):.2f}"
            right = bool(torch.allclose(found, clipped, rtol=1e-5))
            require(right, f"{case}, at most {max_norm:.2f}: {words}")
            # Little more than a number of 8 bytes to and from each rank.
            most = max(traffic.sent.values(), default=0)
            require_sent(most, 2 * 8 * k, f"a device of {k}")
