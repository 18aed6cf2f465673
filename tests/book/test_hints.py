"""Each exercise has two hints, and neither gives the solution away."""

import json
import re

import pytest

from tests.repository import ROOT

EXERCISE = re.compile(
    r"(?s)```\{exercise\}[^\n]*\n:label: (\S+)\n.*?\n```(.*)"
)
HINT = re.compile(
    r"(?s):::\{admonition\} (Hint: [^\n]*)\n:class: hint dropdown\n(.*?)\n:::"
)


def with_hints():
    """Yield each exercise: its label, what follows it, its solution."""
    for path in [
        *ROOT.glob("book/*.ipynb"),
        *ROOT.glob("scripts/chapters/*/*.ipynb"),
    ]:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        for place, text in enumerate(texts):
            for found in EXERCISE.finditer(text):
                rest = "\n".join(texts[place + 1 :])
                yield found[1], found[2], rest.partition("{solution-end}")[0]


EXERCISES = {label: parts for label, *parts in with_hints()}


def sentences(text):
    return {part.strip() for part in re.split(r"(?<=[.?:])\s", text)}


@pytest.mark.parametrize("label", EXERCISES)
def test_an_exercise_has_a_nudge_and_the_idea(label):
    after, _ = EXERCISES[label]
    names = [name for name, _ in HINT.findall(after)]
    assert names == ["Hint: a nudge", "Hint: the idea"]
    assert HINT.sub("", after).strip() == ""


@pytest.mark.parametrize("label", EXERCISES)
def test_a_hint_is_not_the_solution(label):
    after, solution = EXERCISES[label]
    for _, hint in HINT.findall(after):
        assert not sentences(hint) & sentences(solution)
        code = re.findall(r"(?m)^    \S.*\w.*", solution)  # no bracket alone
        assert not [line for line in code if line.strip() in hint]


def test_all_exercises_are_found():
    text = (ROOT / "book" / "exercises.md").read_text("utf-8")
    listed = set(re.findall(r"\{ref\}`(ex-[\w-]+)`", text))
    assert listed <= set(EXERCISES)
    assert len(listed) > 40
