"""scripts/record.py: which recorder runs, and what is refused."""

import runpy
import sys

import pytest

from tests.repository import ROOT

SCRIPT = ROOT / "scripts" / "record.py"
main = runpy.run_path(str(SCRIPT))["main"]


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
