"""Two builds of the site, and two runs of a chapter, are equal to the byte."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
SCRIPT = REPOSITORY / "scripts" / "execute_notebooks.py"

pytestmark = pytest.mark.slow


def files(folder):
    return {
        str(path.relative_to(folder)): path
        for path in folder.rglob("*")
        if path.is_file()
    }


def first_difference(one, two):
    """Return the first line of two files that differs, as each has it."""
    for number, lines in enumerate(zip(*(p.open("rb") for p in (one, two)))):
        if lines[0] != lines[1]:
            return number + 1, *(line[:200] for line in lines)
    return "one is the beginning of the other"


def assert_equal(one, two):
    """Assert that two folders hold the same files, with the same bytes."""
    ours, theirs = files(one), files(two)
    assert len(ours) > 100
    assert sorted(ours) == sorted(theirs)
    found = {
        name: first_difference(ours[name], theirs[name])
        for name in ours
        if ours[name].read_bytes() != theirs[name].read_bytes()
    }
    assert not found


@pytest.fixture(scope="session")
def again(build_site, tmp_path_factory):
    """Build once more: elsewhere, with another order of sets and zone.

    It is the session's, as the site is: so a test that names it first makes
    it, and waits only then for another worker to have built the site.
    """
    folder = tmp_path_factory.mktemp("again") / "in" / "another" / "folder"
    build_site(folder, PYTHONHASHSEED="7", TZ="Asia/Tokyo")
    return folder


def test_two_clean_builds_are_equal(again, site):
    assert_equal(site, again / "_build" / "html")


def test_a_build_on_top_of_a_build_changes_nothing(again, site, build_site):
    assert_equal(site, build_site(again, PYTHONHASHSEED="8"))


# `make reproducible` runs them all; this one draws, and has a live cell, which
# measures.
def test_two_runs_of_a_chapter_are_equal(tmp_path):
    book = tmp_path / "book"
    shutil.copytree(REPOSITORY / "book", book)
    path = book / "devices.ipynb"
    for words in ([], ["--check"]):
        command = [sys.executable, SCRIPT, *words, path]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_difference_is_named(tmp_path):
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
        for number in range(101):
            (folder / f"{number}.html").write_text(f"a\n{number}\n")
    assert_equal(*folders)
    (folders[1] / "7.html").write_text("a\n20:15\n")
    with pytest.raises(AssertionError, match=r"7\.html.*2, b'7.*b'20:15"):
        assert_equal(*folders)
    (folders[0] / "new.html").write_text("a")
    with pytest.raises(AssertionError, match=r"new\.html"):
        assert_equal(*folders)
