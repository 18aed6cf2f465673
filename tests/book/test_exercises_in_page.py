"""Exercises that a page checks: what passes, what is refused, and how.

The check of the built pages reads the same wrong answers, in a browser.
"""

import json
import re

import pytest

from dpbook.exercises.listed import CHECKS
from dpbook.exercises.page import run_code
from tests.repository import ROOT

CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))


def last_function(code):
    return re.findall(r"^def (\w+)", code, re.MULTILINE)[-1]


def tagged(tag):
    """Return what cells with a tag hold, by the name of the function."""
    found = {}
    for path in CHAPTERS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if tag in cell["metadata"].get("tags", []):
                code = "".join(cell["source"])
                found[last_function(code)] = code
    return found


def wrong_answers():
    """Yield (exercise, code, the words that refuse it)."""
    for path in sorted((ROOT / "tests/book/wrong_answers").glob("*.py")):
        parts = re.split(r"^# refused: (.*)\n", path.read_text("utf-8"),
                         flags=re.MULTILINE)[1:]  # fmt: skip
        for why, code in zip(parts[::2], parts[1::2]):
            yield last_function(code), code, why


def checked(name, code):
    return json.loads(run_code(json.dumps({"exercise": name, "code": code})))


STUBS, SOLUTIONS, WRONG = (
    tagged("stub"),
    tagged("solution"),
    [*wrong_answers()],
)


@pytest.mark.parametrize("name", CHECKS)
def test_a_stub_is_refused_and_a_solution_solves(name):
    """Each alone, but for what a stub imports, which stays in the editor."""
    assert not checked(name, STUBS[name])["solved"]
    imports = STUBS[name].split("def ")[0]
    found = checked(name, f"{imports}\n{SOLUTIONS[name]}")
    assert found == {"printed": "", "why": "", "solved": True}


@pytest.mark.parametrize(
    ("name", "code", "why"), WRONG, ids=[name for name, _, _ in WRONG]
)
def test_a_wrong_answer_is_refused_with_its_reason(name, code, why):
    found = checked(name, code)
    assert not found["solved"]
    assert why in found["why"]


def test_each_exercise_has_wrong_answers():
    assert {name for name, _, _ in WRONG} == set(CHECKS)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = 1\ny = = 2", "line 2: SyntaxError: invalid syntax"),
        ("\n\n1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("def sends_first(rank, p):\n    return rank.p",
         "line 2: AttributeError: 'int' object has no attribute 'p'"),
        ("def sends_first(rank):\n    return True",
         "TypeError: sends_first() takes 1 positional argument but 2 were"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        ("def send_first(rank, p): pass",
         "the code defines no function sends_first"),
        ("sends_first = 4", "the code defines no function sends_first"),
    ],
)  # fmt: skip
def test_an_error_names_the_line_of_the_reader(code, why):
    assert checked("sends_first", code)["why"].startswith(why)


def test_a_run_leaves_nothing_to_the_next():
    assert checked(None, "left = print(4)") == {
        "printed": "4\n", "why": "", "solved": False,
    }  # fmt: skip
    assert "NameError" in checked(None, "left")["why"]


def test_much_that_is_printed_is_cut():
    printed = checked(None, "print('x' * 10**6)")["printed"]
    assert printed.endswith("… (1,000,001 characters)")
    assert len(printed) < 6_000
