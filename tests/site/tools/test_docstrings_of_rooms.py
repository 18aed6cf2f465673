"""The docstring of a room names each of its modules, and none that is not.

A room is a folder with one subject: of the library, of the book or of scripts.
"""

import ast
import re

import pytest

from tests.repository import ROOT

# Packages that stand in for others, and have what these have.
STAND_INS = {"no_flash", "vocabulary"}
ROOMS = [
    path.parent.relative_to(ROOT).as_posix()
    for top in ("dpkit", "book/dpbook", "scripts")
    for path in sorted((ROOT / top).rglob("__init__.py"))
    if not STAND_INS.intersection(path.parts)
]
# The others also name functions.
OF_SCRIPTS = [room for room in ROOMS if room.startswith("scripts")]
RECORDS = ROOT / "book" / "_data"
NAME = re.compile(r"``([\w./-]+)``")
HEAD = re.compile(r"((?:``[^`]+``(?:,| and)?\s+)+)-- ")


def docstring(room):
    """Return what a room says of itself."""
    source = (ROOT / room / "__init__.py").read_text("utf-8")
    return ast.get_docstring(ast.parse(source))


def heads(text):
    """Return the names of which a docstring tells: those before " -- "."""
    return NAME.findall(" ".join(HEAD.findall(text)))


def is_in(folder, name):
    """Return whether a folder has such a file, folder or module."""
    module = folder / (name.replace(".", "/") + ".py")
    return (folder / name).exists() or module.exists()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_its_modules(room):
    modules = {path.stem for path in (ROOT / room).glob("*.py")}
    assert modules - {"__init__", *NAME.findall(docstring(room))} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_what_it_tells_of(room):
    names = heads(docstring(room))
    assert [name for name in names if not is_in(ROOT / room, name)] == []


@pytest.mark.parametrize("room", OF_SCRIPTS)
def test_a_file_that_a_room_names_is_there(room):
    """In the room, or by its path; or it is a record, or imported."""
    folders = (ROOT / room, ROOT, RECORDS, ROOT / "scripts")
    names = {*NAME.findall(docstring(room))} - {"cuda"}
    assert {n for n in names if not any(is_in(f, n) for f in folders)} == set()


def test_heads_are_seen_in_each_form():
    text = "``a``, ``b/``,\n``c`` -- see ``d``; ``e`` and ``f`` -- g ``h``."
    assert heads(text) == ["a", "b/", "c", "e", "f"]
