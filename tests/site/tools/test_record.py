"""scripts/record.py: which recorder runs, what is refused, what is told."""

import json
import re
import runpy
import subprocess
import sys

import pytest
import recorders
from recorders import provenance

from tests.repository import ROOT

SCRIPT = ROOT / "scripts" / "record.py"
script = runpy.run_path(str(SCRIPT))
main = script["main"]
KNOWN = script["known"]()


@pytest.mark.parametrize("name", ["wrong", "--help", "provenance", None])
def test_an_unknown_recorder_is_refused(name):
    with pytest.raises(SystemExit, match=r"unknown recorder .*headline"):
        main(*[name] if name else [])


def test_a_recorder_gets_its_arguments(monkeypatch):
    from recorders import published

    called = []
    monkeypatch.setattr(published, "main", lambda *names: called.append(names))
    main("published", "one", "two")
    assert called == [("one", "two")]
    assert "recorders.published" in sys.modules


def heads(section):
    """Return the names with which the entries of a section begin."""
    entries = re.findall(r"(?m)^(``.*?) -- ", section)
    return [name for entry in entries for name in re.findall(r"\w+", entry)]


def reproduced():
    """Return the programs that make reproduce runs without a name."""
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (names,) = re.findall(r"(?m)^RECORDERS := (.*)", text)
    return names.split()


def program_of(record):
    """Return the program that writes a record of book/_data."""
    entries = re.split(r"(?m)^(?=``)", recorders.__doc__)
    for entry in entries:
        if f"``{record}.json``" in entry:
            (name,) = heads(entry)
            return name
    return record


def test_the_room_of_recorders_lists_those_that_make_reproduce_runs():
    _, told = recorders.__doc__.split("``make reproduce`` runs these:")
    told, others = told.split("These run by their names alone:")
    alone, _ = others.split("What these are made of:")
    assert heads(told) == reproduced()
    assert sorted(heads(told) + heads(alone)) == KNOWN


@pytest.mark.parametrize("name", KNOWN)
def test_a_recorder_says_which_command_runs_it(name):
    """In the provenance: what a reader types to make that record again."""
    source = (SCRIPT.parent / "recorders" / f"{name}.py").read_text("utf-8")
    commands = re.findall(r'"((?:python|make) [^"]*)"', source)
    for command in commands:
        assert re.search(rf"[ =]{name}\b", command), command
    assert commands or "provenance" not in source


def recorded():
    """Yield program and command of each record that a program writes."""
    for path in sorted(provenance.DATA.glob("*.json")):
        facts = json.loads(path.read_text()).get("provenance")
        program = program_of(path.stem)
        if facts and program in KNOWN:
            yield pytest.param(program, facts["command"], id=path.stem)


@pytest.mark.parametrize(("program", "command"), list(recorded()))
def test_the_command_of_a_record_runs_its_program(program, command):
    run = {
        "make reproduce": reproduced(),
        "make gpu-report": ["gpu_steps", "gpu_operators", "resident"],
    }
    assert program in run.get(command, re.findall(r"\w+", command))


def test_a_record_with_the_same_results_is_no_change(tmp_path, monkeypatch):
    """Else make reproduce would mark each record after its first."""
    made = tmp_path / "book" / "_data" / "made.json"
    other, published = (made.with_name(n) for n in ("other.json", "told.json"))
    made.parent.mkdir(parents=True)
    made.write_text('{"provenance": {"commit": "a"}, "rows": []}')
    other.write_text('{"provenance": {"commit": "a"}, "rows": []}')
    published.write_text('{"source": "a paper", "rows": []}')
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init"], ["add", "."], [*author, "commit", "-m", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "DATA", made.parent)
    made.write_text('{"rows": [], "provenance": {"commit": "b"}}')
    assert provenance.uncommitted() == []
    made.write_text('{"provenance": {"commit": "b"}, "rows": [1]}')
    other.unlink()
    published.write_text('{"source": "another paper", "rows": []}')
    (tmp_path / "code.py").write_text("")
    names = "made.json", "other.json", "told.json"
    assert provenance.uncommitted() == [
        *(f"book/_data/{name}" for name in names),
        "code.py",
    ]
