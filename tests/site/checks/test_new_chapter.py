"""A new chapter passes the checks that a chapter has to pass, as it is.

It is made in a copy of the repository, where the checks are run too.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from new_chapter import LONGEST, check_name, made, texts
from slim_site import slim

from tests.repository import ROOT

NAME = "fancy-name-of-24-letters"  # as long as one may be
MODULE = NAME.replace("-", "_")
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv*", ".data", ".*_cache", ".hypothesis"),
    *("_build", "node_modules", "__pycache__"),
)


def run(root, *words, **environment):
    """Run a module of Python on a copy, which is imported from there."""
    path = os.pathsep.join([str(root), str(root / "book")])
    environment = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def passes(root, *words):
    status, said = run(root, "-m", *words)
    assert status == 0, said[-3000:]
    return said


def copied(folder):
    return shutil.copytree(ROOT, folder / "copy", ignore=LEFT_OUT)


def contents(root):
    caches = {"__pycache__", ".ruff_cache", ".pytest_cache", ".mypy_cache"}
    paths = (p for p in root.rglob("*") if not caches & set(p.parts))
    return {p: p.read_bytes() for p in paths if p.is_file()}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Give a copy of the repository in which a chapter was made."""
    root = copied(tmp_path_factory.mktemp("new"))
    assert len(NAME) == LONGEST
    status, said = run(root, "scripts/new_chapter.py", NAME)
    assert status == 0, said
    assert f"book/{NAME}.ipynb\n" in said
    return root


@pytest.mark.slow
def test_style_and_types(root):
    check = f"book/dpbook/{MODULE}/check.py"
    files = made(root, NAME)
    passes(root, "ruff", "format", "--check", *files)
    passes(root, "ruff", "check", *files)
    passes(root, "mypy", "--strict", "--follow-imports=skip", check)


@pytest.mark.slow
def test_stored_outputs_are_fresh_ones(root):
    """By the stricter of the two comparisons: a cell not run is told too."""
    page = f"book/{NAME}.ipynb"
    status, said = run(root, "scripts/execute_notebooks.py", "--check", page)
    assert status == 0, said
    assert f"{page}: the same" in said


@pytest.mark.slow
def test_its_exercise_its_entries_and_its_box(root, tmp_path):
    files = ["site/pages/test_front", "site/pages/test_pages",
             "book/test_exercises",
             "book/test_wrong_answers",
             f"book/test_checks_{MODULE}"]  # fmt: skip
    files = [f"tests/{name}.py" for name in files]
    files = [name for name in files if (root / name).exists()]
    chosen = f"{MODULE} or {NAME} or every or index or map"
    said = passes(root, "pytest", "-n0", "-k", chosen, "-m", "not slow",
                  "-v", f"--basetemp={tmp_path}", *files)  # fmt: skip
    for test in (f"test_solution_passes[{MODULE}_rate]",
                 f"test_stub_fails[{MODULE}_rate]",
                 f"test_a_box_has_three_short_lines[{NAME}]",
                 f"test_a_card_says_what_the_box_says[{NAME}]",
                 f"refused_with_its_reason[{MODULE}_rate0]",
                 f"test_{MODULE}_rate[rate-None]"):  # fmt: skip
        assert f"{test} PASSED" in said


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """Build its page, with empty ones in place of those that it links to."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copy(root / "_config.yml", folder)
    book = folder / "book"
    shutil.copytree(root / "book", book, ignore=shutil.ignore_patterns(
        "*.ipynb", "*.md"))  # fmt: skip
    page = root / "book" / f"{NAME}.ipynb"
    linked = set(re.findall(r"{doc}`([\w-]+)`", page.read_text("utf-8")))
    toc = "format: jb-book\nroot: book/index\nchapters:\n"
    for name in sorted(linked | {"index", "bibliography"}):
        (book / f"{name}.md").write_text(f"# The page {name}\n")
        toc += "" if name == "index" else f"- file: book/{name}\n"
    shutil.copy(page, book)
    (folder / "_toc.yml").write_text(toc + f"- file: book/{NAME}\n")
    program = "from jupyter_book.cli.main import main; main()"
    tool = [sys.executable, "-P", "-c", program]
    done = subprocess.run(
        [*tool, "build", folder, "-W", "-n", "--keep-going"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    slim(folder / "_build" / "html")
    return folder


@pytest.mark.slow
def test_its_page_is_built_without_a_warning(built):
    html = built / "_build" / "html" / "book" / f"{NAME}.html"
    text = html.read_text(encoding="utf-8")
    assert "<h1>Fancy name" in text
    assert 'alt="Timeline of a host and two devices.' in text
    assert "find_spec" not in text  # what fetches dpkit is not shown


@pytest.mark.slow
def test_its_page_passes_make_check(built, check_pages):
    status, said = check_pages(built)
    assert status == 0, said


@pytest.mark.slow
def test_one_that_exists_is_refused(root):
    before = contents(root)
    for name in (NAME, "devices", "notation"):
        status, said = run(root, "scripts/new_chapter.py", name)
        assert status == 1
        assert f"there is a chapter of this name (name: '{name}'" in said
    assert contents(root) == before


@pytest.mark.slow
def test_an_error_leaves_all_as_it_was(tmp_path):
    root = copied(tmp_path)
    (root / "scripts" / "execute_notebooks.py").write_text("1 / 0\n")
    before = contents(root)
    status, said = run(root, "scripts/new_chapter.py", NAME)
    assert status == 1
    assert "ZeroDivisionError" in said
    assert f"book/{NAME}.ipynb" in said  # which step
    assert contents(root) == before


@pytest.mark.parametrize(
    "name",
    ["", "Fancy", "fancy name", "../fancy", "1st", "fancy_name", "fancy-",
     "a--b", "class", "é", "a" * (LONGEST + 1)],
)  # fmt: skip
def test_a_bad_name_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(f"(name: {name!r})")):
        check_name(ROOT, name)


def test_the_cell_that_fetches_dpkit_is_that_of_the_chapters():
    page = ROOT / "book" / f"{NAME}.ipynb"
    new = json.loads(texts(ROOT, NAME)[page])["cells"]
    there = json.loads((page.parent / "devices.ipynb").read_text("utf-8"))
    sources = [
        "".join(cell["source"])
        for cells in (new, there["cells"])
        for cell in cells
        if cell["id"].endswith("-setup")
    ]
    assert len(sources) == 2
    assert len(set(sources)) == 1
