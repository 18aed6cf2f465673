"""Python for the pages: put beside the engine, or left out in one line."""

import ast
import sys

import pack_python
import pytest


@pytest.fixture
def site(tmp_path):
    """Return a built site with the engine in it."""
    live = tmp_path / "site" / "_static" / "live"
    live.mkdir(parents=True)
    (live / "engine.js").write_text("var dpkitPython = {};\n")
    (live / "python.js").write_text("of an earlier build")
    return tmp_path / "site"


def test_what_was_packed_is_put_beside_the_engine(tmp_path, site):
    for name in pack_python.NAMES:
        (tmp_path / name).write_text(f"new {name}")
    pack_python.put_into_site(tmp_path, site)
    live = site / "_static" / "live"
    assert (live / "python.js").read_text() == "new python.js"
    said = (live / "engine.js").read_text()
    assert said.splitlines()[-1] == (
        'dpkitPython.sizes = {"python.js": 13, "theory.js": 13};'
    )
    assert "available" not in said


def test_the_engine_is_told_that_there_is_no_python(site):
    pack_python.put_into_site(None, site)
    live = site / "_static" / "live"
    assert sorted(p.name for p in live.iterdir()) == ["engine.js"]
    said = (live / "engine.js").read_text().splitlines()[-1]
    assert said == "dpkitPython.available = false;"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Pack into another folder, and find no program."""
    monkeypatch.setattr(pack_python, "PACKED", tmp_path / "_build" / "live")
    monkeypatch.setattr(pack_python, "install", lambda: "")
    return tmp_path


def test_without_npm_one_line_is_said(elsewhere, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(elsewhere))
    assert pack_python.pack() is None
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "live figures go without Python (there is no node): only frames"
    ]


def test_what_fails_is_named(monkeypatch):
    why = pack_python.run("node", "no-such-file.mjs")
    assert why.startswith(("node failed: ", "there is no node"))


def test_nothing_is_packed_again_without_a_change(elsewhere, monkeypatch):
    calls = []

    def run(*command):
        calls.append(command)
        pack_python.PACKED.mkdir(parents=True)
        return ""

    monkeypatch.setattr(pack_python, "run", run)
    assert pack_python.pack() == pack_python.pack() == pack_python.PACKED
    assert len(calls) == 1
    monkeypatch.setattr(pack_python, "hash_of_sources", lambda: "changed")
    pack_python.pack()
    assert len(calls) == 2
    assert pack_python.PACKED.joinpath(pack_python.MARK).read_text() == (
        "changed"
    )


OF_BROWSERS = "js"  # how Pyodide names what scripts of the page have


def files_of(package):
    """Return the files of a package, or the one of a module."""
    return [package] if package.is_file() else package.rglob("*.py")


IN_PAGES = sorted(
    path
    for package in pack_python.PACKAGES
    for path in files_of(pack_python.ROOT / package)
)


@pytest.mark.parametrize("path", IN_PAGES, ids=lambda p: p.stem)
def test_what_pages_run_needs_the_standard_library_alone(path):
    """A browser runs it under an empty __init__.py of both packages."""
    rooms = {
        name.removeprefix("book/").removesuffix(".py").replace("/", ".")
        for name in pack_python.PACKAGES
    }
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            first = name.partition(".")[0]
            has_it = first in {*sys.stdlib_module_names, OF_BROWSERS}
            is_packed = any(f"{name}.".startswith(f"{x}.") for x in rooms)
            assert is_packed or has_it, name
