"""The live figure of an allreduce."""

from xml.etree import ElementTree

import pytest

from dpbook.explore.collectives import COLLECTIVES, OWNERS
from dpbook.explore.curves import Axis, decades, draw_curves, even
from dpkit.plans.alpha_beta import rates_of
from dpkit.plans.choice import CANDIDATES, choose
from dpkit.sim.hardware import ACCELERATORS, LINKS


def test_times_are_those_of_the_chapter():
    shown = COLLECTIVES.ask(algorithm="star", ranks=8, num_bytes=160_000_000)
    assert ("ring", "2.493 ms") in shown.facts
    assert shown.sentence == (
        "Star: 19.72 ms. It takes 7.97 times as long as halving and doubling "
        "(2.475 ms)."
    )


@pytest.mark.parametrize("ranks", [5, 7, 8])
@pytest.mark.parametrize("num_bytes", [1000, 100_000_000])
def test_the_fastest_is_said_to_be_the_fastest(ranks, num_bytes):
    said = []
    for name in CANDIDATES:
        ask = {"ranks": ranks, "num_bytes": num_bytes, "algorithm": name}
        sentence = COLLECTIVES.ask(**ask).sentence
        if "the fastest" in sentence or "half a per cent" in sentence:
            said.append(name)
    rates = rates_of(ACCELERATORS["v100"], LINKS["nvlink2"])
    assert choose(ranks, num_bytes, rates).algorithm in said
    assert len(said) <= 2


def test_messages_are_drawn_for_few_ranks():
    assert len(COLLECTIVES.ask(ranks=8).pictures) == 2
    assert len(COLLECTIVES.ask(ranks=9).pictures) == 1
    ring, library = (
        COLLECTIVES.ask(algorithm=name).pictures[1].svg
        for name in ("ring", "library")
    )
    assert ring == library


@pytest.mark.parametrize("link", OWNERS)
def test_all_curves_lie_in_the_picture(link):
    svg = COLLECTIVES.ask(link=link, ranks=16).pictures[0].svg
    picture = ElementTree.fromstring(svg)
    height = float(picture.get("height"))
    for path in picture.iter("{http://www.w3.org/2000/svg}path"):
        ends = path.get("d").strip("M").replace("M", "L").split("L")
        for x, y in (map(float, end.split()) for end in ends):
            assert 0 <= x <= 640
            assert 0 <= y <= height


def test_the_chosen_curve_is_wide_and_marked():
    x = Axis("n", str, (1, 10))
    y = Axis("s", str, (0, 2), logarithmic=False)
    curves = {"a": [(1, 1), (10, 2)], "b": [(1, 0), (10, 1)]}
    svg = draw_curves(curves, "t", x, y, mark=10, chosen="b").svg
    assert svg.count('stroke-width="3.5"') == 2  # the curve, and its key
    assert svg.count("<circle") == 2


def test_axes_have_round_ends():
    assert decades(1, 1000) == [1, 10, 100, 1000]
    assert even(4) == [0, 1, 2, 3, 4]
    assert even(0.11) == pytest.approx([0, 0.05, 0.1, 0.15])
    assert Axis("x", str, (0, 4), False).position(1, 10, 50) == 20
    assert Axis("x", str, (1, 100)).position(10, 10, 50) == pytest.approx(30)
