"""A new chapter passes the checks that a chapter has to pass, as it is."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys

import new_chapter
import pytest
import yaml
from assignment import known
from assignment.chapter import answer_of, exercises_of
from new_chapter import LISTS, LONGEST, check_name, made, make, texts
from search_index import write_index
from slim_site import slim

from dpbook.exercises.verdict import why_not
from tests.repository import ROOT

NAME = "fancy-name-of-24-letters"  # as long as one may be
MODULE = NAME.replace("-", "_")


@pytest.fixture
def root(tmp_path):
    """Give a repository of what a new chapter needs; no cell is run there."""
    for file in (*LISTS, "_config.yml", "pyproject.toml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for name in (
        "book/dpbook",
        "scripts",
        "tests/book/wrong_answers/with_torch",
    ):
        (tmp_path / name).mkdir(parents=True)
    execute = tmp_path / "scripts" / "execute_notebooks.py"
    execute.write_text("import sys; print('run:', *sys.argv[1:])")
    return tmp_path


def contents(root):
    paths = (p for p in root.rglob("*") if ".ruff_cache" not in p.parts)
    return {p: p.read_bytes() for p in paths if p.is_file()}


def test_its_files_are_in_style_and_its_cells_are_run(root, capfd):
    assert len(NAME) == LONGEST
    files = made(root, NAME)
    assert {*files} < {*make(root, NAME)}
    assert capfd.readouterr().out == f"run: {files[0]}\n"
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["format", "--check"], ["check"]):
        subprocess.run([*ruff, *words, *files], cwd=root, check=True)


def test_its_solution_passes_and_the_rest_is_refused(root, monkeypatch):
    make(root, NAME)
    page, _, check, _, _ = made(root, NAME)
    check = runpy.run_path(str(check))[f"check_{MODULE}_rate"]
    monkeypatch.setattr(known, "FOLDER", root / "tests/book/wrong_answers")
    wrong = known.wrong_answers()[f"{MODULE}_rate"]
    (exercise,) = exercises_of(page)
    assert why_not(check, answer_of(exercise, exercise.solution)) is None
    assert why_not(check, answer_of(exercise, exercise.stub))
    assert len(wrong) == 2
    for why, code in wrong:
        assert why in why_not(check, answer_of(exercise, code))


def test_it_stands_in_each_list(root):
    before = (root / "book/exercises.md").read_text("utf-8")
    make(root, NAME)
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    (part,) = (p for p in toc["parts"] if p["caption"] == "What may change")
    assert part["chapters"][-1] == {"file": f"book/{NAME}"}
    index = json.loads((root / "book/index.ipynb").read_text("utf-8"))
    text = "".join(line for c in index["cells"] for line in c["source"])
    cards = text.partition("**What may change.**")[2].split("::::\n")[0]
    assert cards.rstrip().endswith("to do\n:::")
    assert f"**{{doc}}`{NAME}`**" in cards
    after = (root / "book/exercises.md").read_text("utf-8")
    assert f"{{ref}}`ex-{NAME}-rate`" in after
    counts = [int(re.search(r"The (\d+) ex", t)[1]) for t in (before, after)]
    assert counts[1] == counts[0] + 1


def test_one_that_exists_is_refused(root, monkeypatch, capsys):
    make(root, NAME)
    (root / "book" / "notation.md").touch()
    before = contents(root)
    monkeypatch.setattr(new_chapter, "ROOT", root)
    for name in (NAME, "notation"):
        monkeypatch.setattr(sys, "argv", ["new_chapter.py", name])
        assert new_chapter.main() == 1
        said = capsys.readouterr().err
        assert f"there is a chapter of this name (name: '{name}'" in said
    assert contents(root) == before


def test_an_error_leaves_all_as_it_was(root, monkeypatch, capfd):
    (root / "scripts" / "execute_notebooks.py").write_text("1 / 0\n")
    before = contents(root)
    monkeypatch.setattr(new_chapter, "ROOT", root)
    monkeypatch.setattr(sys, "argv", ["new_chapter.py", NAME])
    assert new_chapter.main() == 1
    said = capfd.readouterr().err
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


def test_the_address_is_that_of_the_repository(root):
    config = root / "_config.yml"
    text = config.read_text("utf-8")
    address = "https://github.com/some/book"
    config.write_text(re.sub('(?m)^  url: ".*"', f'  url: "{address}"', text))
    fetching = json.loads(new_chapter.notebook(root, NAME))["cells"][1]
    assert f'address, version = "{address}", "HEAD"' in fetching["source"]


# --------------------------------------------- in a copy of the repository


def passes(root, *words):
    """Run a program on a copy, which is imported from there."""
    path = os.pathsep.join([str(root), str(root / "book")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    return said


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Give a copy of the repository in which a chapter was made."""
    copy = tmp_path_factory.mktemp("new") / "copy"
    left_out = (".git", ".venv*", ".data", ".*_cache", ".hypothesis",
                "_build", "node_modules", "__pycache__")  # fmt: skip
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*left_out))
    assert f"{NAME}.ipynb\n" in passes(
        copy, "scripts/chapters/new_chapter.py", NAME
    )
    return copy


@pytest.mark.weekly
def test_it_passes_the_tests_of_chapters(copy, tmp_path):
    """By the stricter of two comparisons: a cell not run is told too."""
    page = f"book/{NAME}.ipynb"
    said = passes(copy, "scripts/execute_notebooks.py", "--check", page)
    assert f"{page}: the same" in said
    check = f"book/dpbook/{MODULE}/check.py"
    passes(copy, "-m", "mypy", "--strict", "--follow-imports=skip", check)
    files = ["site/pages/test_front", "site/pages/test_pages",
             "book/test_exercises", f"book/test_checks_{MODULE}"]  # fmt: skip
    files = [f"tests/{name}.py" for name in files]
    chosen = f"{MODULE} or {NAME} or each or every or index or map"
    said = passes(copy, "-m", "pytest", "-n0", "-k", chosen,
                  "-m", "not slow and not weekly",
                  "-v", f"--basetemp={tmp_path}", *files)  # fmt: skip
    for test in (f"test_the_solution_passes[{MODULE}_rate]",
                 f"test_a_box_has_three_short_lines[{NAME}]",
                 f"test_a_card_says_what_the_box_says[{NAME}]",
                 "test_each_check_has_its_exercise_and_wrong_answers",
                 f"test_{MODULE}_rate[rate-None]"):  # fmt: skip
        assert f"{test} PASSED" in said


@pytest.mark.weekly
def test_its_page_passes_make_check(copy, tmp_path, check_pages):
    """Build it, with empty pages in place of those that it links to."""
    shutil.copy(copy / "_config.yml", tmp_path)
    book = tmp_path / "book"
    pages = shutil.ignore_patterns("*.ipynb", "*.md")
    shutil.copytree(copy / "book", book, ignore=pages)
    page = copy / "book" / f"{NAME}.ipynb"
    linked = set(re.findall(r"{doc}`([\w-]+)`", page.read_text("utf-8")))
    toc = "format: jb-book\nroot: book/index\nchapters:\n"
    every = {"index", "bibliography", "calculator"}  # what all pages link to
    for name in sorted(linked | every):
        text = f"# The page {name}\n"
        if name == "calculator":  # the search is to find this there
            text += "How much memory does a 7B model need? Cost of training\n"
        (book / f"{name}.md").write_text(text)
        toc += "" if name == "index" else f"- file: book/{name}\n"
    shutil.copy(page, book)
    (tmp_path / "_toc.yml").write_text(toc + f"- file: book/{NAME}\n")
    program = "from jupyter_book.cli.main import main; main()"
    words = ("build", str(tmp_path), "-W", "-n", "--keep-going")
    passes(tmp_path, "-P", "-c", program, *words)
    site = tmp_path / "_build" / "html"
    slim(site)
    write_index(site)
    text = (site / "book" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "<h1>Fancy name" in text
    assert 'alt="Timeline of a host and two devices.' in text
    assert "find_spec" not in text  # what fetches dpkit is not shown
    status, said = check_pages(tmp_path)
    assert status == 0, "\n".join(said)
