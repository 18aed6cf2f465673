"""Two builds of the site are equal to the byte.

They are of a few pages, with what could differ from one build to the next:
figures, formulas, boxes, docstrings and their sources, a bibliography, and
a page to print. That two runs of a chapter are equal is shown in
test_new_chapter, and for all chapters by `make execute CHECK=yes`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_site import JUPYTER_BOOK

from tests.repository import ROOT

PAGES = ["devices.ipynb", "notation.md", "api.md", "bibliography.md"]
WRITTEN = {
    "book/index.md": "# The book\n",
    "book/api.md": "# Reference\n\n```{eval-rst}\n"
    ".. autofunction:: dpkit.allreduce\n"
    ".. autoclass:: dpkit.Pipeline\n   :members:\n```\n",
    "_toc.yml": "format: jb-book\nroot: book/index\n"
    "parts:\n- caption: All\n  chapters:\n"
    + "".join(f"  - file: book/{Path(name).stem}\n" for name in PAGES),
}
PRINT = """
import sys; from pathlib import Path; from print_page import write_pages
write_pages(Path(sys.argv[1]))
"""

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


def make_book(folder):
    """Write a small book: some pages as they are, and others for them."""
    shutil.copytree(
        ROOT / "book", folder / "book",
        ignore=shutil.ignore_patterns("*.ipynb", "*.md"),
    )  # fmt: skip
    shutil.copy(ROOT / "_config.yml", folder)
    for name in PAGES:
        shutil.copy(ROOT / "book" / name, folder / "book")
    for name, text in WRITTEN.items():
        (folder / name).write_text(text)
    return folder


def build(folder, **environment):
    """Do what scripts/pages/build_site.py does, but links may lead nowhere."""
    for program, *words in (
        (JUPYTER_BOOK, "build", folder),
        (PRINT, folder),
    ):
        run = subprocess.run(
            [sys.executable, "-P", "-c", program, *words],
            capture_output=True,
            text=True,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(sys.path)}
            | environment,
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return folder / "_build" / "html"


def test_builds_are_equal(tmp_path):
    """Clean ones, and one on top of another.

    The second is elsewhere, with another order of sets and another zone.
    """
    one = make_book(tmp_path / "one")
    two = make_book(tmp_path / "in" / "another" / "folder")
    first = build(one, PYTHONHASHSEED="1", TZ="UTC")
    for name, shown in (
        ("devices", "_images/"),
        ("api", "Pipeline"),
        ("bibliography", "citation"),
    ):
        page = first / "book" / f"{name}.html"
        assert shown in page.read_text(encoding="utf-8")
    assert "Pipeline" in (first / "print-all.html").read_text(encoding="utf-8")
    other = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    assert_equal(first, build(two, **other))
    assert_equal(first, build(two, PYTHONHASHSEED="8"))


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
