"""All exercises by both graders: what is right earns all, the rest nothing.

``make test ON=assignments`` runs this, in an environment with otter-grader.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from assignment.chapter import exercises_of
from assignment.marks import grade
from make_assignment import make, pack

from dpbook.assignment.sheets import ASKED
from tests.repository import ROOT
from tests.site.tools.submissions import filled, wrong_codes, wrong_sheets

OTTER = Path(sys.executable).with_name("otter")
CHAPTERS = {
    path.stem: exercises
    for path in sorted((ROOT / "book").glob("*.ipynb"))
    if (exercises := exercises_of(path))
}


def sheets(exercises):
    """Yield a name, the answers of a sheet, and what each of them earns."""
    yield "solutions", {e.name: e.solution for e in exercises}, 1
    yield "stubs", {}, 0
    names = [e.name for e in exercises]
    for number, answers in enumerate(wrong_sheets(names)):
        yield f"wrong answers {number}", answers, 0


def by_plain(folder, submission):
    """Return the points of each exercise."""
    marks = grade(submission, folder / "assignment.json")
    return {mark.exercise: mark.points for mark in marks}


def by_otter(folder, submission):
    """Return the points of each exercise, as ``otter run`` gives them."""
    out = submission.with_suffix("")
    out.mkdir()
    command = [OTTER, "run", "--no-logo", "-a", folder / "autograder.zip"]
    command += ["-o", out, submission]
    subprocess.run(command, check=True, capture_output=True, cwd=out)
    tests = json.loads((out / "results.json").read_text("utf-8"))["tests"]
    return {t["name"]: t["score"] for t in tests if "score" in t}


GRADERS = {"plain": by_plain, "otter": by_otter}


def made(chapter, target, tmp_path, seed=None):
    path = ROOT / "book" / f"{chapter}.ipynb"
    folder = make(path, target, seed=seed, build=tmp_path)
    if target == "otter":
        pack(folder, OTTER)
    return folder


@pytest.mark.parametrize("target", GRADERS)
@pytest.mark.parametrize("chapter", CHAPTERS)
@pytest.mark.timeout(1800)
def test_what_is_right_earns_all_and_the_rest_nothing(
    chapter, target, tmp_path
):
    folder = made(chapter, target, tmp_path)
    empty = json.loads((folder / "student" / f"{chapter}.ipynb").read_text())
    for name, answers, worth in sheets(CHAPTERS[chapter]):
        submission = tmp_path / f"{name}.ipynb"
        submission.write_text(json.dumps(filled(empty, answers)))
        expected = {e.name: worth for e in CHAPTERS[chapter]}
        assert GRADERS[target](folder, submission) == expected, name


@pytest.mark.parametrize("target", GRADERS)
@pytest.mark.parametrize(
    "chapter", ["overlap", "sharding", "network-partitioning", "splitting"]
)
@pytest.mark.timeout(1800)
def test_a_sheet_wants_its_own_answers(chapter, target, tmp_path):
    """The key of the sheet earns all, and the stubs nothing.

    The solutions of the book earn what a program is worth, and nothing where
    the sheet asks for other numbers.
    """
    folder = made(chapter, target, tmp_path, seed=7)
    empty = json.loads((folder / "student" / f"{chapter}.ipynb").read_text())
    names = [e.name for e in CHAPTERS[chapter]]
    published = tmp_path / "published.ipynb"
    answers = {e.name: e.solution for e in CHAPTERS[chapter]}
    published.write_text(json.dumps(filled(empty, answers)))
    for kind, expected in {
        "instructor": dict.fromkeys(names, 1),
        "student": dict.fromkeys(names, 0),
        "published": {name: int(name not in ASKED) for name in names},
    }.items():
        submission = tmp_path / f"{kind}.ipynb"
        if kind != "published":
            shutil.copy(folder / kind / f"{chapter}.ipynb", submission)
        assert GRADERS[target](folder, submission) == expected, kind


def test_each_exercise_has_wrong_codes():
    names = {e.name for found in CHAPTERS.values() for e in found}
    assert names == set(wrong_codes())
