"""What make elsewhere says of listings that run again."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import elsewhere
from dpbook.elsewhere.results import recorded
from tests.repository import ROOT

BOOK = ROOT / "book"


def test_what_differs_is_named():
    found = recorded("jax", BOOK)
    assert elsewhere.compare(found) == []
    params = dict(found.params)
    params["pmap", 2] = params["pmap", 2] + 1e-9
    facts = found.facts | {"forgotten device_put": 2}
    differences = elsewhere.compare(replace(found, params=params, facts=facts))
    assert differences == [
        "('pmap', 2): parameters are up to 1.0e-09 apart",
        "facts, forgotten device_put: 1 recorded, 2 found",
    ]


def test_another_listing_is_named_beside_what_differs(monkeypatch, tmp_path):
    for name in ("elsewhere", "_data/elsewhere"):
        shutil.copytree(BOOK / name, tmp_path / name)
    path = tmp_path / "elsewhere" / "jax_step.py"
    path.write_text(path.read_text() + "# a comment\n")
    monkeypatch.setattr(elsewhere, "BOOK", tmp_path)
    (line,) = elsewhere.compare(recorded("jax", BOOK))
    assert line.startswith("the record is of another listing")


def test_a_way_that_is_missing_is_named():
    found = recorded("mxnet", BOOK)
    params = dict(found.params)
    del params["Trainer", 1]
    (line,) = elsewhere.compare(replace(found, params=params))
    assert "('Trainer', 1)" in line


@pytest.mark.parametrize(
    ("ends", "options", "code"),
    [
        (["the same", "the same"], [], 0),
        (["the same", elsewhere.DIFFERENT], [], 1),
        (["the same", "not installed"], [], 0),
        (["the same", "not installed"], ["--strict"], 1),
    ],
)
def test_three_ends(monkeypatch, ends, options, code):
    left = iter(ends)
    monkeypatch.setattr(elsewhere, "end_of", lambda *_: next(left))
    arguments = ["elsewhere.py", "jax", "mxnet", *options]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        elsewhere.main()
    assert end.value.code == code


def test_what_cannot_be_installed_says_so(monkeypatch, tmp_path, capsys):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "no\nno wheel")

    monkeypatch.setattr(elsewhere, "ROOT", tmp_path)
    monkeypatch.setattr(elsewhere.subprocess, "run", fail)
    assert elsewhere.end_of("jax", renew=False) == "not installed"
    assert capsys.readouterr().out == "jax: not installed (no wheel)\n"


def test_mxnet_needs_its_python(monkeypatch, tmp_path):
    monkeypatch.setattr(elsewhere, "ROOT", tmp_path)
    monkeypatch.setattr(elsewhere.sys, "version_info", (3, 12, 1))
    monkeypatch.setattr(elsewhere.shutil, "which", lambda name: None)
    why = "MXNet 1.9.1 needs Python 3.11"
    assert elsewhere.environment("mxnet") == (None, why)
