"""The pages for reference: what they list is what there is."""

import importlib
import json
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import words
import yaml

import dpkit
import dpkit.runs
from dpbook.cheat_sheet import minimal_ddp
from tests.repository import ROOT

BOOK = ROOT / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))


def read(name):
    return (BOOK / name).read_text(encoding="utf-8")


def markdown(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kept = [c for c in cells if c["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in kept)


def chapters():
    return [Path(name).stem for name in words.chapters(ROOT)]


NO_FUNCTIONS = {"sim", "ACCELERATORS", "HOSTS", "LINKS"}


@pytest.mark.parametrize(
    ("door", "package", "pages"),
    [
        (dpkit, "dpkit", ["api"]),
        (dpkit.sim, r"dpkit\.sim", ["api-simulated", "api-runs"]),
        (dpkit.runs, r"dpkit\.sim", ["api-runs"]),
    ],
)
def test_the_reference_has_all_names_of_the_package(door, package, pages):
    text = "".join(read(f"{page}.md") for page in pages)
    listed = re.findall(
        rf"(?m)^\.\. auto(?:function|class):: {package}\.(\w+)$", text
    )
    wanted = set(door.__all__) - NO_FUNCTIONS
    assert wanted
    assert wanted <= set(listed)


def test_the_pages_describe_the_package_and_none_of_the_books_own_code():
    """What a page describes has pages of source, and the search finds it."""
    pages = [page.read_text("utf-8") for page in sorted(BOOK.glob("*.md"))]
    text = "\n".join([*pages, *map(markdown, NOTEBOOKS)])
    of_modules = re.findall(r"(?m)^\.\. auto\w+:: (\w+)", text)
    assert set(of_modules) == {"dpkit"}


def test_the_index_has_each_exercise_once_under_its_chapter():
    label = r"```\{exercise\} [^\n]+\n:label: (\S+)"
    given = {
        name: re.findall(label, markdown(BOOK / f"{name}.ipynb"))
        for name in chapters()
    }
    sections = re.split(r"\n## \{doc\}`([\w-]+)`\n", read("exercises.md"))
    listed = {
        name: re.findall(r"- \{ref\}`([\w-]+)`", text)
        for name, text in zip(sections[1::2], sections[2::2])
    }
    assert list(listed) == [name for name in chapters() if given[name]]
    for name in listed:
        assert listed[name] == given[name], name
    total = sum(map(len, given.values()))
    assert f"The {total} exercises" in sections[0]


def test_the_index_names_the_function_of_each_exercise():
    for label, function in re.findall(
        r"\{ref\}`ex-([\w-]+)`\\\n  `(\w+)`", read("exercises.md")
    ):
        assert label.replace("-", "_") == function


def test_how_to_cite_is_told_the_same_in_both_places():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    page = read("about.md")
    entry = dict(re.findall(r"  (\w+) += \{+(.*?)\}+,\n", page))
    assert entry["title"] == cited["title"]
    names = [author["name"] for author in cited["authors"]]
    assert entry["author"] == " and ".join(names)
    assert project["project"]["authors"] == cited["authors"]
    assert entry["version"] == cited["version"]
    assert cited["version"] == dpkit.__version__
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    assert config["author"] == ", ".join(names)
    assert (entry["title"], entry["year"]) == (
        config["title"],
        config["copyright"],
    )
    for key in ("cff-version", "message", "type", "license"):
        assert cited[key]


def first_words(table_of, column):
    """Return the names in code of one column of the tables of a section."""
    section = read("terms.md").split(f"## {table_of}\n")[1].split("\n## ")[0]
    names = []
    for row in re.findall(r"(?m)^\| .*\|$", section):
        cells = row.strip("|").split("|")
        if column < len(cells):
            names += re.findall(r"`([\w.]+)", cells[column])
    return names


def test_names_of_dpkit_in_the_table_exist():
    for section in ("Collectives", "One program that drives all devices"):
        for name in first_words(section, 0):
            if name != "x.to":
                assert hasattr(dpkit, name), name


def test_names_of_pytorch_in_the_table_exist():
    tables = read("terms.md")
    found = re.findall(
        r"(?m)^\| dpkit \| torch.distributed .*\n.*\n((?:\|.*\n)+)", tables
    )
    names = re.findall(r"(?m)^\|[^|]+\| `(\w+)", found[0])
    assert len(names) == 8
    assert [name for name in names if not hasattr(dist, name)] == []
    for path in (
        *("nn.parallel.scatter", "nn.parallel.replicate"),
        *("nn.parallel.gather", "cuda.nccl.all_reduce", "nn.DataParallel"),
        *("nn.SyncBatchNorm", "distributed.pipelining"),
    ):
        assert f"`{path}`" in tables
        assert pkgutil.resolve_name(f"torch.{path}")
    # Not imported above: it takes seconds.
    engine = pkgutil.resolve_name("torch.distributed.tensor.parallel")
    for name in ("ColwiseParallel", "RowwiseParallel"):
        assert f"tensor.parallel.{name}" in tables
        assert hasattr(engine, name)


@pytest.mark.slow
def test_the_program_of_the_cheat_sheet_runs(capsys):
    """That a script may launch a function of its own: see test_processes."""
    text = markdown(BOOK / "cheat-sheet.ipynb")
    (source,) = re.findall(r"```python\n# main.py\n(.*?)```", text, re.S)
    exec(source, {"__name__": "__main__"})
    assert f"`{capsys.readouterr().out.strip()}`" in text


MISMATCH = """
import torch
import torch.distributed as dist


def differ():
    dist.all_reduce(torch.ones(2 + dist.get_rank()))
"""


@pytest.mark.slow
def test_the_debug_variable_names_what_ranks_disagree_on(
    tmp_path, monkeypatch
):
    variable = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
    assert f"`{variable}`" in markdown(BOOK / "cheat-sheet.ipynb")
    (tmp_path / "mismatch.py").write_text(MISMATCH, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(*variable.split("="))
    # torch reads the variable as it is imported: no rank may be forked.
    differ = importlib.import_module("mismatch").differ
    with pytest.raises(RuntimeError, match="mismatch between collectives"):
        dpkit.launch(differ, 2)
    sys.modules.pop("mismatch")


def test_one_program_for_all_devices_runs_as_the_cheat_sheet_has_it(capsys):
    text = markdown(BOOK / "cheat-sheet.ipynb")
    (block,) = re.findall(r"```python\n(devices = .*?)```", text, re.S)
    names = {"dpkit": dpkit, "net": torch.nn.Linear(3, 2)}
    names["step"] = lambda: names["net"](torch.ones(5, 3)).sum().backward()
    exec(block, names)
    assert isinstance(names["net"], dpkit.DataParallel)
    assert len(names["net"].devices) == 4
    assert torch.equal(
        names["net"].module.bias.grad.cpu(), torch.full((2,), 5.0)
    )
    assert capsys.readouterr().out.strip() == str(names["timer"])


@pytest.mark.slow
def test_the_program_to_copy_learns_the_same_on_any_number_of_ranks(run_ranks):
    said = [run_ranks(k, minimal_ddp.__name__) for k in (1, 2)]
    assert said[0] == said[1]
    assert float(said[0].split()[-1]) < 0.01
