"""Pictures of plans and their costs: whole, legible, and able to stop."""

import re
from xml.etree import ElementTree

import pytest

from dpbook.collectives.pictures import plot_ports, plot_winners
from dpbook.plans.animation import animate_plan
from dpbook.plans.pictures import Grid, draw_plan
from dpkit.plans.algorithms import allreduce_plan
from dpkit.plans.direct import pairwise
from dpkit.plans.plan import Message, Plan
from dpkit.plans.rings import ring
from dpkit.plans.trees import star
from dpkit.sim.timeline.drawing import BLUE, GREEN, WIDTH

SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg, kind="rect"):
    return list(ElementTree.fromstring(svg).iter(SVG + kind))


def coloured(svg, colour, kind="rect"):
    return [s for s in shapes(svg, kind) if s.get("fill") == colour]


@pytest.mark.parametrize("name", ["star", "tree", "ring", "halving_doubling"])
@pytest.mark.parametrize("p", [2, 4, 5])
def test_a_plan_fills_all_boxes(name, p):
    plan = allreduce_plan(name, p)
    svg = draw_plan(plan).svg
    full = p * plan.num_chunks
    bottom = max(float(s.get("y")) for s in coloured(svg, GREEN))
    last = [s for s in coloured(svg, GREEN) if float(s.get("y")) == bottom]
    assert len(last) == full
    # An arrow has a head, and the legend has none.
    assert len(coloured(svg, BLUE, "path")) == len(
        [m for m in plan.messages if m.adds]
    )
    assert len(coloured(svg, GREEN, "path")) == len(
        [m for m in plan.messages if not m.adds]
    )


@pytest.mark.parametrize(("make", "boxes"), [(ring, 16), (star, 4)])
def test_boxes_start_with_a_share_each(make, boxes):
    svg = draw_plan(make(4)).svg
    _, *blue = coloured(svg, BLUE)  # the first is the legend's
    rows = [float(s.get("y")) + float(s.get("height")) for s in blue]
    first = [s for s, row in zip(blue, rows) if row == min(rows)]
    assert len(first) == boxes
    assert {float(s.get("height")) for s in first} == {22 / 4}


@pytest.mark.parametrize("p", [2, 4, 8])
def test_all_is_on_the_page(p):
    svg = draw_plan(ring(p)).svg
    for shape in shapes(svg):
        assert float(shape.get("x") or 0) >= 0
        right = float(shape.get("x") or 0) + float(shape.get("width"))
        assert right <= WIDTH
    grid = Grid(p, p)
    last = grid.x(p - 1, p - 1) + grid.width
    assert last == pytest.approx(WIDTH - 14)


def test_a_plan_that_cannot_be_is_not_drawn():
    with pytest.raises(ValueError, match="sends more than once"):
        draw_plan(
            Plan("no", 3, 1, [[Message(0, 1, 0, 1), Message(0, 2, 0, 1)]])
        )


def test_an_exchange_can_be_drawn():
    assert "all to all" in repr(draw_plan(pairwise(3)))


def test_the_animation_moves_each_message_once():
    html = animate_plan(ring(4)).svg
    assert len(re.findall(r'class="move move-', html)) == 24
    far = re.findall(r"--far:(-?[\d.]+)px", html)
    grid = Grid(4, 4)
    assert float(far[0]) == pytest.approx(grid.x(1, 0) - grid.x(0, 0), abs=0.1)
    for number in range(1, 7):
        assert html.count(f"then-{number}") >= 2


def test_the_animation_can_stand_still_and_needs_no_script():
    html = animate_plan(star(3)).svg
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-reduced-motion:reduce" in html
    assert '<input type="checkbox"' in html
    assert "animation-play-state:paused" in html
    assert 'role="img"' in html
    assert 'aria-label="star, 3 ranks, 4 steps' in html


def test_two_animations_on_a_page_do_not_meet():
    names = [
        re.search(r"dpkit-plan-\w+", animate_plan(plan).svg).group()
        for plan in (ring(3), ring(4), star(3))
    ]
    assert len(set(names)) == 3
    assert animate_plan(ring(3)).svg == animate_plan(ring(3)).svg


def test_every_frame_belongs_to_its_picture():
    """Rules name the picture that they are for."""
    html = animate_plan(ring(3)).svg
    (style,) = re.findall(r"<style>(.*?)</style><label", html)
    name = re.search(r"dpkit-plan-\w+", html).group()
    for rule in re.findall(r"(?:^|})([^{}@]+){", style):
        if not re.match(r"[\d.%,]+$", rule):
            assert name in rule, rule


def test_a_picture_of_ports():
    ports = plot_ports({"star": [6, 2], "ring": [3, 3]}, bound=3)
    assert "<svg" in ports.svg


def test_the_map_has_a_name_in_each_region():
    rows = [["a", "a", "b"], ["a", "b", "b"], ["c", "c", "c"]]
    picture = plot_winners([2, 3, 4], [1e3, 1e4, 1e5], rows)
    assert repr(picture) == "<picture: the fastest by ranks and size: a, b, c>"
    again = plot_winners([2, 3, 4], [1e3, 1e4, 1e5], rows)
    assert picture.svg == again.svg
