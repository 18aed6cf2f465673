"""Each test stands in a room, and those of the library need nothing else.

So ``make test ON=sim FILES="dpkit tests/sim tests/kit tests/runs"`` tests the
library alone.
"""

import ast
import re

import pytest

from tests.repository import ROOT

TESTS = ROOT / "tests"
WALLS = ("sim", "kit", "runs")
SCRIPTS = {
    path.stem
    for pattern in ("*", "*/*.py")
    for path in (ROOT / "scripts").glob(pattern)
}
# Also in the programs that tests start, which are strings.
NAMED = re.compile(r"\b(dpbook|recorders|tests\.(?:book|site))\b")
OF_THE_LIBRARY = [
    path.relative_to(ROOT).as_posix()
    for folder in (ROOT, TESTS, *(TESTS / wall for wall in WALLS))
    for path in sorted(folder.glob("*.py"))
]


def imported(source):
    """Return the first part of each name that a source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def borrowed(source):
    """Return what a source has of the book, of scripts or of other rooms."""
    return {*NAMED.findall(source)} | SCRIPTS.intersection(imported(source))


@pytest.mark.parametrize("name", OF_THE_LIBRARY)
def test_tests_of_the_library_borrow_nothing(name):
    assert borrowed((ROOT / name).read_text("utf-8")) == set()


@pytest.mark.parametrize(
    ("part", "above"), [("sim", "kit"), ("sim", "runs"), ("kit", "runs")]
)
def test_tests_of_a_part_borrow_nothing_from_above(part, above):
    named = re.compile(rf"\btests[./]{above}\b")
    borrowing = [
        path.name
        for path in sorted((TESTS / part).glob("*.py"))
        if named.search(path.read_text("utf-8"))
    ]
    assert borrowing == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("from dpbook.common import plots", "dpbook"),
        ("import dpkit, pack_python", "pack_python"),
        ("PROGRAM = '''\nimport dpbook.job'''", "dpbook"),
        ("from recorders.trust import bert", "recorders"),
        ("from tests.book.test_exercises import PAGES", "tests.book"),
        ("words = ['-m', 'dpbook', 'train']", "dpbook"),
    ],
)
def test_what_is_borrowed_is_seen(source, what):
    assert what in borrowed(source)
    assert borrowed("from tests.runs.engines_on_ranks import words") == set()


def test_no_test_stands_outside_the_rooms():
    """``make test`` would run it, and no target of a room."""
    assert [*TESTS.glob("test_*.py")] == []
