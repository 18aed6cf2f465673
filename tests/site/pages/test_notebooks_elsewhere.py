"""Notebooks where others open them: JupyterLab, Binder, a branch of git."""

import os
import re
import shlex
import subprocess

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
    steps = dry_run("notebooks").splitlines()
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


def test_binder_takes_the_pinned_torch_without_cuda():
    lines = (ROOT / ".binder/requirements.txt").read_text("utf-8").split("\n")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in lines
    pinned = (ROOT / "requirements.txt").read_text("utf-8")
    wanted = re.findall(r"(?m)^torch(?:vision)?==\S+", pinned)
    assert len(wanted) == 2
    assert [f"{line}+cpu" for line in wanted] == [
        line for line in lines if line.startswith("torch")
    ]


@pytest.fixture
def clone(tmp_path):
    """Return a repository with one chapter, and its plain notebook beside."""
    for name, text in {
        "book/a.ipynb": "with solutions",
        "book/b.md": "a page",
        ".gitignore": "_build/",
        "_build/html/_sources/book/a.ipynb": "plain",
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

    for text in ("plain", "plain, a later build"):
        built = clone / "_build/html/_sources/book/a.ipynb"
        built.write_text(text)
        assert notebooks_branch.commit(clone, "notebooks") == 1
        assert shown("book/a.ipynb") == text
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


def test_the_target_writes_the_branch_that_its_line_names():
    (line,) = (
        line
        for line in dry_run("notebooks-branch").splitlines()
        if "notebooks_branch.py" in line
    )
    assert line.endswith("scripts/notebooks_branch.py . notebooks")
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert "make notebooks-branch" in config
