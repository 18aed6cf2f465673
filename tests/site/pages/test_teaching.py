"""The page for lecturers: its minutes, its exercises and its commands."""

import re

import pytest
from assignment.known import wrong_answers
from make_assignment import SECONDS
from reading_time import minutes_of
from words import on_the_page

from tests.repository import ROOT

PAGE = (ROOT / "book/teaching.md").read_text("utf-8")
PLAN = re.compile(r"(?m)^## (One \w+)\n((?:(?!^## )[^\n]*\n)*)")
PLANS = dict(PLAN.findall(PAGE))


def rows(plan):
    """Return the cells of each row of the table of a plan."""
    lines = [line for line in plan.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def minutes(chapters):
    found = [
        minutes_of([*on_the_page(ROOT, f"book/{name}.ipynb")])
        for name in chapters
    ]
    return [sum(m.reading for m in found), sum(m.doing for m in found)]


def test_there_are_three_plans():
    assert list(PLANS) == ["One lecture", "One week", "One quarter"]


@pytest.mark.parametrize("plan", PLANS)
def test_the_minutes_are_those_of_the_chapters(plan):
    _, *weeks, (*_, reading, doing) = rows(PLANS[plan])
    everything = []
    for *_, chapters, read, do in weeks:
        names = re.findall(r"\{doc\}`([\w-]+)`", chapters)
        assert names
        assert [int(read), int(do)] == minutes(names), chapters
        everything += names
    assert len(everything) == len({*everything})
    assert [int(reading), int(doing)] == minutes(everything), "together"


def test_the_mistakes_are_of_exercises_that_know_wrong_answers():
    table = PAGE.split("| exercise | what people write |")[1].split("\n\n")[0]
    names = re.findall(r"(?m)^\| `(\w+)`", table)
    assert len(names) > 9
    assert {*names} <= {*wrong_answers()}


def test_the_commands_and_limits_are_those_of_the_graders():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?m)^make ([\w-]+)", PAGE):
        assert re.search(rf"(?m)^{target}:", makefile)
    assert "for four minutes at most, and then each check, for one" in PAGE
    assert SECONDS == 4 * 60


def test_the_sections_that_may_be_left_out_are_there():
    names = re.findall(r"section \*([^*]+)\*", PAGE)
    assert len(names) == 2
    chapters = [p.read_text("utf-8") for p in (ROOT / "book").glob("*.ipynb")]
    for name in names:
        assert any(f'"## {name}' in text for text in chapters), name
