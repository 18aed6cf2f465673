"""Costs in closed form: exact, bounded from below, chosen from, and fitted."""

import math
import random
from fractions import Fraction

import pytest

from dpkit.plans.algorithms import allreduce_plan
from dpkit.plans.alpha_beta import (
    errors,
    fit,
    ideal_cluster,
    rates_of,
)
from dpkit.plans.bounds import (
    SHARES,
    bus_bandwidth,
    in_switch_share,
    lower_bounds,
    seconds_at,
)
from dpkit.plans.choice import CANDIDATES, choose, winners
from dpkit.plans.costs import (
    CHAINS,
    Chain,
    Rates,
    chain,
    hierarchical_seconds,
    log2,
    ring_chain,
    seconds,
)
from dpkit.plans.doubling import core
from dpkit.plans.plan import count
from dpkit.sim.hardware import ACCELERATORS, LINKS

SIZES = range(1, 18)
A, B, C = Fraction(7, 3), Fraction(2, 11), Fraction(1, 13)  # α, β, γ
RATES = Rates(A, B, C)


def lg(p):
    return math.ceil(math.log2(p))


# -- closed forms, as they stand in the books


@pytest.mark.parametrize("p", SIZES)
def test_closed_forms_are_exact_in_fractions(p):
    n = Fraction(1009, 7)
    q, extra = core(p), 2 * (A + n * B) + n * C
    folds = extra if q < p else 0
    expected = {
        "star": 2 * (p - 1) * (A + n * B) + (p - 1) * n * C,
        "tree": 2 * lg(p) * (A + n * B) + lg(p) * n * C,
        "ring": 2 * (p - 1) * A + Fraction(p - 1, p) * (2 * n * B + n * C),
        "recursive_doubling": lg(q) * (A + n * B + n * C) + folds,
        "halving_doubling": 2 * lg(q) * A
        + Fraction(q - 1, q) * (2 * n * B + n * C)
        + folds,
    }
    expected["direct"] = expected["ring"]
    assert set(expected) == set(CHAINS)
    for name, value in expected.items():
        assert seconds(name, p, n, RATES) == value, name


@pytest.mark.parametrize(("p", "g"), [(8, 4), (12, 3), (6, 1), (5, 5)])
def test_nodes_are_two_rings(p, g):
    n, k = Fraction(1009, 7), p // g
    across = Rates(5 * A, 9 * B, C)
    expected = 2 * (g - 1) * A + Fraction(g - 1, g) * n * (2 * B + C)
    expected += 10 * (k - 1) * A
    expected += Fraction(k - 1, k) * n / g * (18 * B + C)
    assert (
        hierarchical_seconds(p, n, g, inside=RATES, across=across) == expected
    )


@pytest.mark.parametrize("p", SIZES)
def test_nodes_send_what_a_ring_sends(p):
    n = Fraction(1009)
    for g in (g for g in SIZES if p % g == 0):
        inside, across = ring_chain(g, n), ring_chain(p // g, n / g)
        both = [sum(parts) for parts in zip(inside, across)]
        assert tuple(both[1:]) == ring_chain(p, n)[1:]


def test_the_first_exact_case():
    """160 MB on 4 devices, 16 GB/s: by one of them, by the CPU, by parts."""
    rates = Rates(0, Fraction(1, 16 * 10**9))
    n = 160 * 10**6
    assert seconds("star", 4, n, rates) == Fraction(60, 1000)
    assert seconds("star", 5, n, rates) == Fraction(80, 1000)
    assert seconds("direct", 4, Fraction(n), rates) == Fraction(15, 1000)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", CHAINS)
def test_the_busiest_port_sends_what_is_in_the_chain(name, p):
    """Its half, where one port receives the one and sends the other."""
    n = math.lcm(p, core(p)) * 12
    counts = count(allreduce_plan(name, p), n)
    messages, moved, _ = chain(name, p, n)
    if name in ("star", "tree"):
        messages, moved = messages / 2, moved / 2
    elif "doubling" in name and p > core(p):  # into the core, and out
        messages, moved = messages - 1, moved - n
    assert moved == max(c.sent for c in counts)
    assert moved == max(c.received for c in counts)
    assert messages == max(c.sends for c in counts)


def test_what_is_unknown_is_refused():
    with pytest.raises(ValueError, match="algorithm: 'circle', known: star"):
        chain("circle", 4, 1)
    with pytest.raises(ValueError, match="ranks: 0"):
        seconds("ring", 0, 1, RATES)
    for g in (0, 3):
        with pytest.raises(ValueError, match=rf"ranks: 8, in a node: {g}\)"):
            hierarchical_seconds(8, 1, g, inside=RATES, across=RATES)


def test_binary_logarithms():
    assert [log2(p) for p in SIZES] == [lg(p) for p in SIZES]


# -- bounds


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", CHAINS)
def test_no_algorithm_beats_a_bound(name, p):
    n = Fraction(1009, 7)
    for rates in (RATES, Rates(A, 0, 0), Rates(0, B, 0), Rates(0, 0, C)):
        bound = lower_bounds(p, n, rates)
        assert seconds(name, p, n, rates) >= bound.seconds == max(bound)


def test_who_reaches_which_bound():
    n = Fraction(1009)
    latency, bandwidth = Rates(A, 0, 0), Rates(0, B, C)
    for p in (2, 4, 8, 16):
        bound = lower_bounds(p, n, latency).latency
        assert seconds("recursive_doubling", p, n, latency) == bound
    for p in SIZES:
        _, sent, added = lower_bounds(p, n, bandwidth)
        assert seconds("ring", p, n, bandwidth) == sent + added


@pytest.mark.parametrize("collective", SHARES)
def test_bus_bandwidth_and_back(collective):
    time = seconds_at(collective, 8, num_bytes=1e9, bytes_per_second=450e9)
    assert bus_bandwidth(
        collective, 8, num_bytes=1e9, seconds=time
    ) == pytest.approx(450e9)


def test_bus_bandwidth_as_nccl_tests_defines_it():
    assert (
        bus_bandwidth("allreduce", 8, num_bytes=100, seconds=2)
        == 50 * 2 * 7 / 8
    )
    assert (
        bus_bandwidth("allgather", 8, num_bytes=100, seconds=2) == 50 * 7 / 8
    )
    assert (
        bus_bandwidth("reduce_scatter", 8, num_bytes=100, seconds=2)
        == 50 * 7 / 8
    )
    assert bus_bandwidth("alltoall", 8, num_bytes=100, seconds=2) == 50 * 7 / 8
    assert bus_bandwidth("broadcast", 8, num_bytes=100, seconds=2) == 50
    with pytest.raises(ValueError, match="collective: 'all', known: allred"):
        bus_bandwidth("all", 8, num_bytes=100, seconds=2)


def test_a_ring_without_latency_has_the_rate_of_its_links():
    rates = Rates(0, Fraction(1, 450))
    for p in range(2, 18):
        time = seconds("ring", p, Fraction(1009), rates)
        assert bus_bandwidth(
            "allreduce", p, num_bytes=Fraction(1009), seconds=time
        ) == (pytest.approx(450))


def test_a_switch_that_adds_saves_almost_half():
    ratios = [SHARES["allreduce"](p) / in_switch_share(p) for p in (8, 1024)]
    assert ratios == [pytest.approx(14 / 9), pytest.approx(2, rel=0.01)]


# -- the choice


@pytest.mark.parametrize("p", SIZES)
def test_the_fastest_is_chosen(p):
    for n in (0, 100, 10**4, 10**6, 10**9):
        choice = choose(p, n, Rates(2e-6, 1e-11, 1e-12))
        times = {
            name: seconds(name, p, n, Rates(2e-6, 1e-11, 1e-12))
            for name in CANDIDATES
        }
        assert choice.seconds == min(times.values())
        assert choice.ranking == times
        assert list(choice.ranking.values()) == sorted(times.values())
        if p > 1:
            best, second = sorted(times.values())[:2]
            assert choice.factor == second / best >= 1


def test_choices_by_size():
    rates = Rates(2e-6, 1e-11, 1e-12)
    assert choose(8, 1, rates).algorithm == "recursive_doubling"
    assert choose(8, 1e9, rates).algorithm == "halving_doubling"
    assert choose(7, 1e9, rates).algorithm == "ring"
    assert choose(2, 1e9, rates).algorithm == "ring"  # the first of equals
    assert choose(1, 1e9, rates).factor == 1


def test_the_map_of_winners():
    rates = Rates(2e-6, 1e-11, 1e-12)
    sizes = [10**i for i in range(10)]
    found = winners(SIZES, sizes, rates)
    assert found == [
        [choose(p, n, rates).algorithm for n in sizes] for p in SIZES
    ]


# -- rates from presets and from measurements


def test_rates_of_known_hardware():
    alpha, beta, gamma = rates_of(ACCELERATORS["h200"], LINKS["nvlink4"])
    assert alpha == 2.8e-6
    assert 1 / beta == pytest.approx(0.84 * 450e9)
    assert 1 / gamma == pytest.approx(0.84 * 4.8e12 / 3)


def test_an_ideal_cluster_takes_rates_that_are_zero():
    free = ideal_cluster(3, Rates(0, 0, 0))
    assert math.isinf(free.link.bytes_per_second)
    assert math.isinf(free.accelerator.bytes_per_second)


def ring_of_8(n):
    return ring_chain(8, n)


def test_a_fit_finds_the_rates_that_made_the_times():
    rates = Rates(3e-6, 2e-12)
    times = {n: ring_of_8(n).seconds(rates) for n in (1e3, 1e6, 1e9)}
    alpha, beta, gamma = fit(times, ring_of_8)
    assert alpha == pytest.approx(rates.alpha, rel=1e-9)
    assert beta == pytest.approx(rates.beta, rel=1e-9)
    assert gamma == 0
    for error in errors(times, ring_of_8, Rates(alpha, beta)).values():
        assert abs(error) < 1e-9


def test_no_other_rates_have_smaller_relative_errors():
    draw = random.Random(0)
    times = {
        n: ring_of_8(n).seconds(Rates(3e-6, 2e-12)) * draw.uniform(0.7, 1.3)
        for n in (1e3, 1e5, 1e6, 1e7, 1e9)
    }

    def squares(rates):
        return sum(e**2 for e in errors(times, ring_of_8, rates).values())

    best = fit(times, ring_of_8)
    for factor in (0.99, 1.01):
        for change in ({"alpha": best.alpha * factor},
                       {"beta": best.beta * factor}):  # fmt: skip
            assert squares(best._replace(**change)) > squares(best)


def test_a_fit_needs_two_sizes():
    with pytest.raises(ValueError, match=r"two sizes \(times: 1\)"):
        fit({8: 1.0}, ring_of_8)


def test_an_error_has_a_sign():
    found = errors({10: 4.0}, lambda n: Chain(1, n, 0), Rates(1, 0.1))
    assert found == {10: -0.5}
