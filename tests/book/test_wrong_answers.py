"""Known wrong answers that need torch are refused with their reason.

Those that a page checks are tried in ``test_exercises_in_page``.
"""

import pytest
from assignment.chapter import exercises_of
from assignment.known import FOLDER, wrong_answers

from dpbook.assignment.grading import refusal
from dpbook.exercises.listed import CHECKS
from tests.repository import ROOT

SETUPS = {
    exercise.name: exercise.setup
    for path in sorted((ROOT / "book").glob("*.ipynb"))
    for exercise in exercises_of(path)
}
KNOWN = wrong_answers()
WITH_TORCH = [
    (name, code, why)
    for name, answers in KNOWN.items()
    for why, code in answers
    if name not in CHECKS
]


def test_every_exercise_has_wrong_answers():
    assert {*KNOWN} == {*SETUPS}
    assert (FOLDER / "with_torch").is_dir()


@pytest.mark.parametrize(
    ("name", "code", "why"), WITH_TORCH, ids=[n for n, _, _ in WITH_TORCH]
)
def test_a_wrong_answer_is_refused_with_its_reason(name, code, why):
    names = {}
    exec(f"{SETUPS[name]}\n\n\n{code}", names)
    assert why in (refusal(name, names[name]) or "solved")
