"""The examples in docstrings are there and run; so do the README's commands.

``make test`` runs them, by ``--doctest-modules``; here none may skip itself.
"""

import doctest
import importlib
import inspect
import pkgutil
import re
import shlex

import pytest

import dpbook
import dpkit
from dpbook.__main__ import job_parser
from dpbook.own_script.running import terminal
from dpkit.__main__ import command_parser
from tests.repository import ROOT

README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(*pages):
    """Return the listings of pages, each with its kind: "", "python" …"""
    texts = [(ROOT / page).read_text("utf-8") for page in pages]
    return [block for text in texts for block in BLOCK.findall(text)]


MODULES = [
    found.name
    for package in (dpkit, dpbook)
    for found in pkgutil.walk_packages(
        package.__path__, f"{package.__name__}."
    )
] + ["dpkit"]
PARSERS = {"dpkit": command_parser(), "dpbook": job_parser()}


def examples(module):
    """Return the examples of a module, by the name of what they show."""
    return {
        test.name: test.examples
        for test in doctest.DocTestFinder().find(module)
    }


def test_no_example_is_skipped():
    skipped = [
        shown
        for name in MODULES
        for shown, lines in examples(importlib.import_module(name)).items()
        if any(line.options.get(doctest.SKIP) for line in lines)
    ]
    assert not skipped


def test_no_example_is_behind_a_prompt_that_doctest_does_not_see():
    """Such as `>>>` in a comment, or in a string that is no docstring."""
    for name in MODULES:
        module = importlib.import_module(name)
        source = inspect.getsource(module)
        written = re.findall(r"^ *>>> ", source, re.MULTILINE)
        seen = sum(map(len, examples(module).values()))
        assert len(written) == seen, name


def test_scripts_have_no_examples():
    """Nothing would run them."""
    for pattern in ("*.py", "*/*.py"):
        for path in (ROOT / "scripts").glob(pattern):
            assert ">>>" not in path.read_text("utf-8"), path.name


# A module, whose functions have examples, and what `train` returns.
WITHOUT = {"sim", "TrainingRecord"}


@pytest.mark.parametrize("name", sorted({*dpkit.__all__} - WITHOUT))
def test_every_public_name_has_an_example(name):
    assert ">>> " in inspect.getdoc(getattr(dpkit, name))


def test_the_program_of_how_to(capsys):
    """It shards one layer over four ranks, and prints who waited for whom."""
    listed = blocks("book/how-to.md")
    (program,) = [text for kind, text in listed if kind == "python"]
    exec(program, {})
    assert "sim:3 compute" in capsys.readouterr().out


def test_the_readme_shows_what_a_step_prints(capsys, monkeypatch):
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    given = command_parser().parse_args(["step"])
    given.command(given, "python -m dpkit step")
    printed = capsys.readouterr().out
    assert printed.strip() in README


def test_the_readme_shows_a_part_of_a_real_report():
    """The script is the one that the chapter own-script runs."""
    command = "python -m dpkit torchrun --nproc-per-node 8 --accelerator h100"
    report = terminal(f"{command} train.py")
    (shown,) = [
        x for k, x in blocks("README.md") if k == "text" and "GPU" in x
    ]
    missing = set(shown.splitlines()) - set(report.splitlines())
    assert missing == set()


def commands():
    """Return the lines that a reader types, as words."""
    listed = blocks("README.md", "book/gpus.md", "book/how-to.md")
    typed = "".join(text for kind, text in listed if not kind)
    lines = typed.replace("\\\n", "").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_command_exists(words):
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert re.search(rf"^{words[1]}:.*##", makefile, re.MULTILINE)
    elif "-m" in words:
        place = words.index("-m") + 1
        given = PARSERS[words[place]].parse_args(words[place + 1 :])
        assert callable(given.command)
    else:
        assert words in (["nvidia-smi"], "pip install -e .".split())


def test_what_the_readme_names_is_there():
    make = set(re.findall(r"`make ([a-z-]+)", README))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert make <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    table = README.split("## Where things are")[1]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", row):
            assert (ROOT / name).exists(), name
