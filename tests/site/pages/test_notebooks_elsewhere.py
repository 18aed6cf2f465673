"""Notebooks where others open them: JupyterLab, Binder, a branch of git."""

import json
import os
import re
import shlex
import subprocess

import copy_notebooks
import nbformat
import notebooks_branch
import pytest
from nbformat.sign import NotebookNotary

from tests.repository import ROOT
from tests.running.test_targets import dry_run

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))


def trusted(notary):
    """Return for how many notebooks JupyterLab shows the stored pictures."""
    read = [nbformat.read(path, as_version=4) for path in NOTEBOOKS]
    return sum(map(notary.check_signature, read))


def test_the_chapters_are_trusted_before_jupyterlab_opens(tmp_path):
    steps = dry_run("edit").splitlines()
    last = next(i for i, step in enumerate(steps) if "jupyter lab" in step)
    notary = NotebookNotary(data_dir=str(tmp_path))
    try:
        assert trusted(notary) == 0
        for step in steps[:last]:
            subprocess.run(
                shlex.split(step.partition(">")[0]),
                cwd=ROOT,
                env=os.environ | {"JUPYTER_DATA_DIR": str(tmp_path)},
                check=True,
                capture_output=True,
            )
        assert trusted(notary) == len(NOTEBOOKS)
    finally:
        notary.store.close()


@pytest.fixture
def built(tmp_path):
    """Return a clone whose site has two plain notebooks."""
    plain = tmp_path / "_build/html/_sources/book"
    plain.mkdir(parents=True)
    for name in ("a.ipynb", "b.ipynb"):
        (plain / name).write_text("given")
    for name in copy_notebooks.RECORDS:
        (tmp_path / "book" / name).mkdir(parents=True)
        (tmp_path / "book" / name / "record.json").write_text("{}")
    return tmp_path


def test_what_a_reader_has_written_into_a_notebook_stays(
    built, monkeypatch, capsys
):
    notebooks, plain = built / "notebooks", built / "_build/html/_sources/book"
    assert copy_notebooks.copy(built) == []
    assert (notebooks / "_data" / "record.json").exists()
    assert (notebooks / "elsewhere" / "record.json").exists()
    (notebooks / "a.ipynb").write_text("an answer")
    assert copy_notebooks.copy(built) == []  # there is nothing new
    for name in ("a.ipynb", "b.ipynb"):
        (plain / name).write_text("new")
    (plain / "c.ipynb").write_text("new")
    (notebooks / "c.ipynb").write_text("downloaded")
    monkeypatch.setattr("sys.argv", ["copy_notebooks", str(built)])
    assert copy_notebooks.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in said] == [
        *("notebooks/a.ipynb", "notebooks/c.ipynb")
    ]
    assert {p.name: p.read_text() for p in notebooks.glob("*.ipynb")} == {
        "a.ipynb": "an answer", "b.ipynb": "new", "c.ipynb": "downloaded"
    }  # fmt: skip
    # Moved away, it makes room for the new one.
    (notebooks / "a.ipynb").rename(notebooks / "mine.ipynb")
    assert copy_notebooks.copy(built) == ["c.ipynb"]
    assert (notebooks / "a.ipynb").read_text() == "new"


def test_without_a_site_no_notebook_is_copied(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["copy_notebooks", str(tmp_path)])
    assert copy_notebooks.main() == 1
    assert "first: make book" in capsys.readouterr().err
    assert not (tmp_path / "notebooks").exists()


def test_the_notebooks_are_copied_and_trusted_before_jupyterlab_opens():
    copied, trusted, opened = dry_run("notebooks").splitlines()[-3:]
    assert copied.endswith("scripts/chapters/copy_notebooks.py .")
    assert "-m nbformat.sign notebooks/*.ipynb" in trusted
    assert "-m jupyter lab " in opened
    assert opened.endswith(" notebooks")
    # JupyterLab refuses root, who one is in a container.
    assert ("--allow-root" in opened) == (os.getuid() == 0)


def test_binder_takes_the_pinned_torch_without_cuda():
    lines = (ROOT / ".binder/requirements.txt").read_text("utf-8").split("\n")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in lines
    pinned = (ROOT / "requirements.txt").read_text("utf-8")
    wanted = re.findall(r"(?m)^torch(?:vision)?==\S+", pinned)
    assert len(wanted) == 2
    assert [f"{line}+cpu" for line in wanted] == [
        line for line in lines if line.startswith("torch")
    ]


PLAIN = '{"cells": []}'


@pytest.fixture
def clone(tmp_path):
    """Return a repository with one chapter, and its plain notebook beside."""
    for name, text in {
        "book/a.ipynb": "with solutions",
        "book/b.md": "a page",
        ".gitignore": "_build/",
        "_build/html/_sources/book/a.ipynb": PLAIN,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "a"),
        ("config", "user.email", "b"),
        ("add", "."),
        ("commit", "-qm", "a"),
    ):
        notebooks_branch.git(tmp_path, *words)
    return tmp_path


def test_the_branch_has_the_plain_notebooks_and_all_else(clone):
    def shown(what):
        return notebooks_branch.git(clone, "show", f"notebooks:{what}")

    for text in (PLAIN, f"{PLAIN} "):
        built = clone / "_build/html/_sources/book/a.ipynb"
        built.write_text(text)
        assert notebooks_branch.commit(clone, "notebooks") == 1
        assert shown("book/a.ipynb") == text.strip()
    assert shown("book/b.md") == "a page"
    # One commit after HEAD, however often it was written.
    ahead = notebooks_branch.git(
        clone, "rev-list", "--count", "HEAD..notebooks"
    )
    assert ahead == "1"
    assert notebooks_branch.git(clone, "status", "--porcelain") == ""
    assert notebooks_branch.git(clone, "branch", "--show-current") == "main"


def test_no_branch_is_written_of_what_has_no_commit(clone):
    (clone / "book/b.md").write_text("changed")
    with pytest.raises(ValueError, match=r"without a commit \(M book/b.md\)"):
        notebooks_branch.commit(clone, "notebooks")
    (clone / "book/b.md").write_text("a page")
    (clone / "_build/html/_sources/book/a.ipynb").unlink()
    with pytest.raises(ValueError, match="no built site; first: make book"):
        notebooks_branch.commit(clone, "notebooks")
    assert notebooks_branch.git(clone, "branch", "--list", "notebooks") == ""


def test_no_branch_is_written_of_pictures_that_not_every_viewer_shows(clone):
    built = clone / "_build/html/_sources/book/a.ipynb"
    for others, refused in (({}, True), ({"image/png": "…"}, False)):
        output = {"data": {"image/svg+xml": "<svg/>", **others}}
        cells = [{"cell_type": "markdown"}, {"outputs": [output]}]
        built.write_text(json.dumps({"cells": cells}))
        if refused:
            why = r"without PNG.* \(pictures: 1, the first in a.ipynb\)"
            with pytest.raises(ValueError, match=why):
                notebooks_branch.commit(clone, "notebooks")
        else:
            assert notebooks_branch.commit(clone, "notebooks") == 1


def test_the_target_writes_the_branch_that_its_line_names():
    (line,) = (
        line
        for line in dry_run("notebooks-branch").splitlines()
        if "notebooks_branch.py" in line
    )
    assert line.endswith("scripts/owner/notebooks_branch.py . notebooks")
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert "make notebooks-branch" in config
