"""A module imports only from floors below its own."""

import ast
from pathlib import Path

import pytest

import dpkit

PACKAGE = Path(dpkit.__file__).parent
FLOORS = [
    {"sim"},
    {"machine", "placement", "collectives"},
    {"data_parallel", "evaluate"},
    {"training"},
    {"lab"},
]
MODULES = sorted(
    p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"
)


def part(path):
    """Return the module or folder of dpkit that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor(name):
    (found,) = [i for i, names in enumerate(FLOORS) if name in names]
    return found


def imported(source):
    """Return the parts of dpkit that a source imports."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "import by full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            words = name.split(".")
            if words[0] == "dpkit":
                parts.add(words[1])
    return parts


def upward(name, source):
    """Return what the module ``name`` may not import, but does."""
    others = imported(source) - {name}
    return {other for other in others if floor(other) >= floor(name)}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.stem))
def test_imports_point_down(path):
    assert upward(part(path), path.read_text()) == set()


def test_an_upward_import_is_seen():
    assert upward("sim", "from dpkit.machine import Timer") == {"machine"}
    assert upward("machine", "import dpkit.placement") == {"placement"}
    assert upward("lab", "from dpkit import sim, machine") == set()


def test_the_floor_plan_is_the_one_that_is_told():
    """The docstring of dpkit names each module, on its floor."""
    told = dpkit.__doc__.split("\nFloor ")[1:]
    for names, text in zip(FLOORS, told, strict=True):
        for name in names:
            assert f"``{name}" in text


def test_no_module_has_the_name_of_a_function():
    modules = {part(path) for path in MODULES} - {"sim"}
    assert not modules & set(dpkit.__all__)


def test_one_file_alone_claims_the_backend():
    """All use of PrivateUse1 stands in dpkit/sim."""
    for path in MODULES:
        if part(path) != "sim":
            assert "privateuse" not in path.read_text().lower(), path


def test_one_file_alone_asks_for_the_kind():
    for path in MODULES:
        if part(path) not in ("sim", "machine"):
            assert "cuda" not in path.read_text().replace("cuda:0", ""), path
