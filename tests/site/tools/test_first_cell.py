"""The first cell of a notebook fetches dpkit, where it is not installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import install_in_notebook as install
import pytest
import yaml
from plain_notebooks import plain, revision_of
from set_address import PLACEHOLDER

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
TEMPLATE = ROOT / "scripts/chapters/template/new-chapter.ipynb"
ADDRESS = "https://github.com/some/book"
PINNED = re.compile(r"(?m)^(torch|torchvision)==(\S+)")


def first_code_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(cell for cell in cells if cell["cell_type"] == "code")


def written():
    """Return the address that `_config.yml` holds, or the placeholder."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    return config["repository"]["url"] or PLACEHOLDER


def test_the_first_cells_fetch_dpkit_from_the_one_address():
    fetches = "".join(first_code_cell(TEMPLATE)["source"])
    assert fetches.count(PLACEHOLDER) == 1
    for path in NOTEBOOKS:
        cell = first_code_cell(path)
        source = "".join(cell["source"])
        assert source == fetches.replace(PLACEHOLDER, written()), path
        assert cell["metadata"]["tags"] == ["remove-cell"]
        assert cell["outputs"] == []


def test_a_torch_that_is_new_enough_stays(tmp_path, monkeypatch, capsys):
    """It is older than that of requirements.txt."""
    monkeypatch.chdir(tmp_path)
    here, asked = {"torch": "2.12.0", "torchvision": "0.27.0"}, []
    monkeypatch.setattr(install.metadata, "version", here.__getitem__)
    monkeypatch.setattr(install, "pip", lambda *words: asked.append(words))
    install.main()
    kept = (tmp_path / "torch-here.txt").read_text().split()
    assert kept == ["torch==2.12.0", "torchvision==0.27.0"]
    assert asked == [("--quiet",)]
    assert capsys.readouterr() == ("", "")


def run_cell(python, source, folder, **environment):
    """Run a cell in the IPython of a Python, in a folder without dpkit."""
    program = (
        "import sys; from IPython.core.interactiveshell import *;"
        "shell = InteractiveShell.instance();"
        "result = shell.run_cell(sys.argv[1]); result.raise_error()"
    )
    # `make test ENV=…` names the clone there, and dpkit would be found in it.
    # IPython looks for packages in an environment that is activated, too.
    there = ("PYTHONPATH", "VIRTUAL_ENV")
    inherited = {k: v for k, v in os.environ.items() if k not in there}
    # In another locale Python does not read a path file with other letters.
    inherited["LC_ALL"] = "C.UTF-8"
    run = subprocess.run(
        [python, "-c", program, source],
        capture_output=True, text=True, env=inherited | environment,
        cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


@pytest.fixture
def bare(tmp_path_factory):
    """Return a Python with every package of this one but dpkit; an old torch.

    A path file makes them importable; the editable dpkit is not, for its own
    path file is only read in the folder of this Python.
    """
    folder = tmp_path_factory.mktemp("bare")
    words = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(words, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    about = site / "torch-2.5.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(metadata("torch", "2.5.0"))
    files = [f"{about.name}/{file},,\n" for file in ("METADATA", "RECORD")]
    (about / "RECORD").write_text("".join(files))
    return folder / "bin" / "python"


def metadata(name, version):
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@pytest.fixture
def clone(tmp_path):
    """Return a repository with what the first cell of a notebook needs."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "dpkit", clone / "dpkit")
    for name in ("_data", "dpbook", "elsewhere"):
        shutil.copytree(ROOT / "book" / name, clone / "book" / name)
    room = "scripts/environment"
    shutil.copytree(ROOT / room, clone / room)
    for name in (
        *("pyproject.toml", "requirements.txt", "README.md", "LICENSE"),
        "scripts/install_in_notebook.py",
    ):
        shutil.copy(ROOT / name, clone / name)
    commit(clone, "init", "-q")
    return clone


def commit(clone, *first):
    """Commit all that is there; return the name of the commit."""
    git = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=b"]
    commands = [["add", "--all"], ["commit", "-qm", "a"]]
    for command in [first, *commands] if first else commands:
        subprocess.run([*git, *command], check=True)
    return revision_of(clone)


def pretend_wheel(folder, name, version):
    """Write a package with nothing in it, for pip to install."""
    about = f"{name}-{version}.dist-info"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    facts = {
        "METADATA": metadata(name, version),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for file, text in facts.items():
            packed.writestr(f"{about}/{file}", text)


def plain_first_cell(address, revision):
    """Return the code that a plain notebook begins with, for an address."""
    text = NOTEBOOKS[0].read_text(encoding="utf-8")
    notebook = json.loads(text.replace(written(), address))
    cells = plain(notebook, "page", str, revision=revision)["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    return "".join(first["source"])


def test_while_no_address_is_set_the_first_cell_says_what_to_do(
    bare, tmp_path
):
    source = plain_first_cell(PLACEHOLDER, "HEAD")
    asked = f"try:\n    get_ipython().run_cell({source!r}).raise_error()\n"
    asked += "except ModuleNotFoundError as error:\n    print('said', error)"
    *_, said = run_cell(bare, asked, tmp_path).splitlines()
    assert said == (
        "said this notebook needs dpkit and the book's records: in a clone "
        "of the book's repository type `make notebooks`, and open it there"
    )
    assert "!" not in source  # no command of the shell
    # Where dpkit is, nothing happens.
    assert run_cell(sys.executable, source, tmp_path) == ""


@pytest.mark.slow
def test_the_first_cell_installs_its_commit_and_says_which_torch(
    bare, clone, tmp_path
):
    """The torch that is there is too old. Its place gets the pinned one."""
    revision = revision_of(clone)
    (clone / "dpkit/__init__.py").write_text("of a later commit")
    assert commit(clone) != revision
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    wheels = dict(PINNED.findall((ROOT / "requirements.txt").read_text()))
    for name in wheels:
        pretend_wheel(elsewhere, name, wheels[name])
        pretend_wheel(elsewhere, name, "99.0")  # which nobody has tried
    source = plain_first_cell(ADDRESS, revision)
    assert f', "{revision}"\n' in source
    # Git finds the clone at the address. pip builds with the setuptools that
    # is there, and asks no index.
    offline = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{clone}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(elsewhere),
    }
    where = "\nfrom importlib.util import find_spec"
    where += "\nprint('found', find_spec('dpkit').origin)"
    said = run_cell(bare, source + where, elsewhere, **offline).splitlines()
    # When this was said, the old one was there.
    assert said[0].startswith("dpkit needs torch>=2.11 (here: 2.5.0). ")
    assert "interrupt this cell" in said[0]
    assert f"torch-{wheels['torch']}" in said[1].split()
    (site,) = bare.parent.parent.glob("lib/python*/site-packages")
    found = [path.name for path in site.glob("torch-*")]
    assert found == [f"torch-{wheels['torch']}.dist-info"]
    assert said[-1] == f"found {site}/dpkit/__init__.py"
    installed = (site / "dpkit/__init__.py").read_text("utf-8")
    assert installed != "of a later commit"
    # What the cells read by a path is there too.
    assert (elsewhere / "_data" / "headline.json").exists()


def test_the_first_cell_does_nothing_where_dpkit_is(tmp_path):
    source = "".join(first_code_cell(NOTEBOOKS[0])["source"])
    assert run_cell(sys.executable, source, tmp_path, PIP_NO_INDEX="1") == ""
