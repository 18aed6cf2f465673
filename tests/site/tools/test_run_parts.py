"""The parts of `make test-all`: all that can be run stands in one of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rehearsal.parts import short_rehearsal
from testing import run_parts
from testing.run_parts import Part, choose

from tests.repository import ROOT

PARTS = run_parts.read_parts()
# Bash has this in place of make: it prints what would be run.
DRY = """
make() { command make -n --no-print-directory "$@" ENV="$PREFIX"; }
"""


def would_run(part):
    """Return the commands that a part would run, with what they are given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = subprocess.run(
        ["bash", "-c", DRY + part.run],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=kept | {"PREFIX": sys.prefix},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def unrun(files, given):
    """Return the files that are not given, and lie in no given folder."""
    places = {Path(word) for word in given}
    return [file for file in files if not {file, *file.parents} & places]


def test_each_file_of_tests_is_run_by_a_part():
    run = "".join(map(would_run, PARTS)).replace('"', "")
    words = set(run.split())
    words |= {word for part in short_rehearsal() for word in part.command}
    given = {w for w in words if w.startswith(("tests/", "book/"))}
    files = [*(ROOT / "tests").rglob("test_*.py"), *ROOT.glob("book/*.ipynb")]
    files += (ROOT / "tests" / "packages").glob("*s_of_*.py")
    names = [file.relative_to(ROOT) for file in files]
    assert unrun(names, given) == []


def weekly_words(printed):
    """Return the words of commands that do not leave out the mark weekly."""
    lines = printed.replace("\\\n", " ").splitlines()
    chosen = [line for line in lines if "not weekly" not in line]
    return set(" ".join(chosen).replace('"', "").split())


def test_what_runs_each_week_alone_is_run_by_a_part():
    words = set().union(*(weekly_words(would_run(part)) for part in PARTS))
    given = {word for word in words if word.startswith("tests/")}
    files = [
        file.relative_to(ROOT)
        for file in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.weekly|few_of\(", file.read_text("utf-8"))
    ]
    assert len(files) > 10
    assert unrun(files, given) == []


def test_a_command_without_weekly_tests_is_not_counted():
    printed = (
        'pytest -m "not weekly" \\\n tests/a\npytest -m "not cuda" tests/b'
    )
    assert "tests/a" not in weekly_words(printed)
    assert "tests/b" in weekly_words(printed)


def test_a_file_that_no_part_runs_is_named():
    files = [Path("tests/sim/test_a.py"), Path("tests/new/test_b.py")]
    assert unrun(files, ["tests/sim", "book"]) == [files[1]]
    assert unrun(files, ["tests/new/test_b.py"]) == [files[0]]


def test_each_week_all_parts_are_run():
    path = ROOT / ".github" / "workflows" / "weekly.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["part"]["strategy"]["matrix"]
    assert matrix == {"part": [part.name for part in PARTS]}


A, B = Part("a", "true", "nothing"), Part("b", "false", "nothing")


def test_what_has_passed_is_not_run_again_unless_it_is_named():
    assert choose([A, B], [], set()) == [A, B]
    assert choose([A, B], [], {"a"}) == [B]
    assert choose([A, B], ["a"], {"a"}) == [A]


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"\(named: c, known: a, b\)"):
        choose([A, B], ["c"], set())


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    ran = tmp_path / "ran"
    command = "echo {0} >> {1}; echo flaky: {0}1; [ {0} = a ]"
    table = [Part(x, command.format(x, ran), "") for x in "ab"]
    monkeypatch.setattr(run_parts, "read_parts", lambda: table)
    monkeypatch.setattr(run_parts, "files_now", lambda: tmp_path.name)
    monkeypatch.setattr(run_parts, "ROOT", tmp_path)
    monkeypatch.setattr(run_parts, "KEPT", tmp_path / "kept")
    for _ in range(2):
        assert run_parts.main([]) == 1
    assert ran.read_text().split() == ["a", "b", "b"]
    said = capsys.readouterr()
    assert "b: FAILED" in said.out
    lines = said.out.splitlines()
    assert (lines.count("a: flaky: a1"), lines.count("b: flaky: b1")) == (1, 2)
