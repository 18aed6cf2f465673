"""Assignments: nothing leaks, and the grader gives what is earned."""

import csv
import doctest
import json
from pathlib import Path

import pytest
from assignment.chapter import exercises_of
from assignment.marks import Mark, grade
from assignment.otter_tests import otter_test
from assignment.seeded import replaced
from assignment.sheet import notebook_of
from grade_assignment import main, write
from make_assignment import make, what_differs

from dpbook.assignment.sheets import asked
from tests.repository import ROOT
from tests.site.tools.submissions import filled, wrong_codes

CHAPTERS = {
    path.stem: exercises
    for path in sorted((ROOT / "book").glob("*.ipynb"))
    if (exercises := exercises_of(path))
}


def text_of(notebook):
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"])


def sheet_of(exercises, solved):
    points = {exercise.name: 1 for exercise in exercises}
    return notebook_of(
        "A chapter", exercises, points, metadata={}, solved=solved
    )


def leaks(notebook, exercises):
    """Return the lines of solutions that a notebook has."""
    text = text_of(notebook)
    return [
        line
        for exercise in exercises
        for line in exercise.solution.splitlines()
        if line.startswith(" ")  # what the function does, not its name
        and len(line.strip()) > 8
        and line not in exercise.stub.splitlines()
        and line in text.splitlines()
    ]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_students_notebook_has_no_solution(chapter):
    exercises = CHAPTERS[chapter]
    assert leaks(sheet_of(exercises, solved=False), exercises) == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_instructors_notebook_has_every_solution(chapter):
    exercises = CHAPTERS[chapter]
    sheet = sheet_of(exercises, solved=True)
    assert leaks(sheet, exercises)
    for exercise in exercises:
        assert exercise.solution in text_of(sheet)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_students_notebook_has_what_each_exercise_says(chapter):
    text = text_of(sheet_of(CHAPTERS[chapter], solved=False))
    for exercise in CHAPTERS[chapter]:
        assert f"{exercise.title} (1 point)" in text
        assert exercise.stub in text
        assert exercise.setup in text
        assert f"check({exercise.name})" in text
    assert "{exercise}" not in text
    assert ":::" not in text


def test_hints_can_be_left_out(tmp_path):
    path = ROOT / "book/overlap.ipynb"
    with_hints = make(path, "plain", build=tmp_path) / "student/overlap.ipynb"
    assert "Hint: a nudge" in with_hints.read_text()
    without = make(path, "plain", hints=False, build=tmp_path)
    assert "Hint" not in (without / "student/overlap.ipynb").read_text()


def test_a_chapter_without_exercises_is_refused(tmp_path):
    path = ROOT / "book/museum.ipynb"
    with pytest.raises(ValueError, match="museum has no exercises"):
        make(path, "plain", build=tmp_path)


def submitted(tmp_path, answers, chapter="overlap", seconds=None):
    """Make an assignment and a submission; return both files."""
    path = ROOT / "book" / f"{chapter}.ipynb"
    folder = make(path, "plain", build=tmp_path)
    told = folder / "assignment.json"
    if seconds:
        said = json.loads(told.read_text())
        told.write_text(json.dumps({**said, "seconds": seconds}))
    empty = json.loads((folder / "student" / path.name).read_text())
    submission = tmp_path / "ada.ipynb"
    submission.write_text(json.dumps(filled(empty, answers)))
    return submission, told


def test_a_right_answer_a_wrong_one_and_a_stub(tmp_path):
    right = {e.name: e.solution for e in CHAPTERS["overlap"]}
    answers = {
        "cut_buckets": wrong_codes()["cut_buckets"][0],
        "fill_buckets": right["fill_buckets"],
    }
    found = grade(*submitted(tmp_path, answers))
    assert [(m.exercise, m.points, m.of) for m in found] == [
        ("cut_buckets", 0, 1),
        ("fill_buckets", 1, 1),
        ("accumulated_step", 0, 1),
    ]
    assert "the last one ends at 13.2 ms" in found[0].why
    assert found[1].why == ""
    write(found, tmp_path)
    rows = list(csv.DictReader((tmp_path / "marks.csv").open()))
    assert [row["points"] for row in rows] == ["0", "1", "0"]
    assert json.loads((tmp_path / "marks.json").read_text())[1]["points"] == 1


def test_what_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["grade", str(tmp_path), "ada.ipynb"])
    assert main() == 1
    said = capsys.readouterr().err
    assert said == f"no assignment is there ({tmp_path}/assignment.json)\n"
    (tmp_path / "assignment.json").touch()
    assert main() == 1
    assert capsys.readouterr().err == "nothing to grade (ada.ipynb)\n"


def test_a_failed_cell_is_named_beside_full_marks_and_the_rest_is_graded(
    tmp_path, monkeypatch, capsys
):
    """The rest: where one of the notebooks is not there."""
    right = {e.name: e.solution for e in CHAPTERS["overlap"]}
    submission, told = submitted(tmp_path, right)
    notebook = json.loads(submission.read_text())
    fails = {"cell_type": "code", "metadata": {}, "source": ["1 / 0"]}
    notebook["cells"].insert(0, fails)
    submission.write_text(json.dumps(notebook))
    words = ["grade", str(told.parent), "ben.ipynb", str(submission)]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 1
    said = capsys.readouterr()
    assert said.err == "not graded, as no file is there (ben.ipynb)\n"
    first, *exercises = said.out.splitlines()
    assert first == f"{submission}: 3 of 3"
    why = "cell 1: ZeroDivisionError: division by zero"
    assert [line.endswith(f"1 of 1   {why}") for line in exercises] == [
        *(True, True, True)
    ]
    marks = json.loads((told.parent / "marks.json").read_text())
    assert [(mark["points"], mark["why"]) for mark in marks] == [(1, why)] * 3


# Of the time that it is given it leaves itself a second, and then never ends.
ENDLESS = """
def cut_buckets():
    import signal
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, min(left, 1))
    while True:
        pass
"""


@pytest.mark.slow
def test_what_ends_or_never_ends_earns_nothing_and_the_rest_counts(tmp_path):
    right = {e.name: e.solution for e in CHAPTERS["overlap"]}
    answers = {
        **right,
        "cut_buckets": ENDLESS,
        "accumulated_step": "def accumulated_step(parallel, loss, batches):\n"
        "    import os\n    os._exit(0)",
    }
    cut, fill, step = grade(*submitted(tmp_path, answers, seconds=2400))
    assert cut.why == "it raised TimeoutError: it took longer than 600 s"
    assert fill.points == 1
    assert step == Mark(
        step.submission, "accumulated_step", 0, 1,
        "not checked: the process ended with status 0",
    )  # fmt: skip


@pytest.mark.slow
def test_a_notebook_that_never_ends_is_stopped(tmp_path):
    endless = "while True:\n    try:\n        while True:\n            pass\n"
    answers = {"cut_buckets": f"{endless}    except Exception:\n        pass"}
    found = grade(*submitted(tmp_path, answers, seconds=6))
    assert {m.points for m in found} == {0}
    assert found[0].why == "not checked: the notebook took longer than 6 s"


def passes(test, answer):
    """Run a file of tests of otter-grader, as it does, for one answer."""
    names = {}
    exec(test, names)
    (case,) = names["test"]["suites"][0]["cases"]
    parsed = doctest.DocTestParser().get_doctest(
        case["code"], {names["test"]["name"]: answer}, "test", None, 0
    )
    runner = doctest.DocTestRunner(verbose=False)
    return runner.run(parsed, out=lambda _: None).failed == 0


def test_otters_tests_call_the_check(tmp_path):
    test = otter_test("cut_buckets", 2)
    assert passes(test, lambda: [1, 1, 2, 2, 3, 1])
    assert not passes(test, lambda: [5, 5])
    folder = make(ROOT / "book/overlap.ipynb", "otter", build=tmp_path)
    made = sorted(path.stem for path in Path(folder, "tests").glob("*.py"))
    assert made == ["accumulated_step", "cut_buckets", "fill_buckets"]


def test_a_sheet_asks_for_its_own_numbers_and_has_no_key(tmp_path):
    path = ROOT / "book/overlap.ipynb"
    folder = make(path, "plain", seed=7, build=tmp_path)
    assert folder.name == "overlap-plain-7"
    sheet = json.loads((folder / "student/overlap.ipynb").read_text())
    text = text_of(sheet)
    assert "This is sheet 7." in text
    assert "8, 8, 4, 4, 4, 2, 2, 2, 1 and 1 MB" not in text
    assert "check(cut_buckets)" not in text  # it asks for the book's numbers
    assert "check(fill_buckets)" in text
    for key in asked("cut_buckets", 7).keys:
        assert str(key) not in text
    solved = json.loads((folder / "instructor/overlap.ipynb").read_text())
    assert str(asked("cut_buckets", 7).keys[0]) in text_of(solved)
    assert json.loads((folder / "assignment.json").read_text())["seed"] == 7


def test_what_a_seed_changes_is_printed():
    assert what_differs(ROOT / "book/overlap.ipynb").splitlines() == [
        "other numbers: cut_buckets",
        "further cases: fill_buckets",
        "as in the book: accumulated_step",
    ]


def test_a_phrase_that_the_text_has_not_is_named():
    with pytest.raises(ValueError, match=r"not once in the text \(0: nine"):
        replaced("Ten devices.", {"nine": "eight"})
