"""What a module may import, beyond what import-linter checks."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import dpkit
from tests.repository import ROOT

PACKAGE = Path(dpkit.__file__).parent
MODULES = sorted(
    p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"
)


def part(path):
    """Return the module or folder of dpkit that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_the_docstring_of_the_library_names_each_part():
    for name in {part(path) for path in MODULES}:
        assert f"``{name}" in dpkit.__doc__


def test_the_docstring_lists_the_parts_in_the_order_of_imports():
    """From the bottom to the top; import-linter's layers go down."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = facts["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"]
        for contract in contracts
        if contract["name"].startswith("three walls")
    )
    floors = {
        name: floor
        for floor, layer in enumerate(reversed(layers))
        for name in re.findall(r"\w+", layer)
    }
    heads = re.findall(r"(?m)^    (``.*?) -- ", dpkit.__doc__)
    told = [name for head in heads for name in re.findall(r"\w+", head)]
    assert {*told} == {*floors}
    assert told == sorted(told, key=floors.get)


def test_no_module_has_the_name_of_a_function():
    modules = {part(path) for path in MODULES} - {"sim"}
    assert not modules & set(dpkit.__all__)


def test_clock_and_timeline_need_no_torch(run_new):
    """As in a page: a timeline is made and drawn."""
    program = """
import sys
from dpkit import sim
from dpkit.sim.clock.clock import Clock
from dpkit.sim.hardware.clusters import cluster
clock = Clock(cluster())
timeline = sim.Timeline(clock.record())
clock.compute(0, "mm", seconds=1e-3)
assert "<svg" in timeline._repr_svg_()
print({"torch", "matplotlib", "numpy"} & set(sys.modules))
"""
    assert run_new(program) == "set()\n"


def test_one_file_alone_claims_the_backend():
    """All use of PrivateUse1 stands in dpkit/sim."""
    for path in MODULES:
        if part(path) != "sim":
            assert "privateuse" not in path.read_text().lower(), path


# What torch answers, and wrongly where it counts simulated devices.
QUESTIONS = {
    "torch.accelerator.current_accelerator",
    "torch.accelerator.current_device_index",
    "torch.accelerator.device_count",
    "torch.accelerator.is_available",
    "torch.cuda.device_count",
    "torch.cuda.is_available",
}


def questions(source):
    """Return which questions for real accelerators a source asks torch."""
    asked = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            asked.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            asked |= {f"{node.module}.{alias.name}" for alias in node.names}
    return asked & QUESTIONS


@pytest.mark.parametrize(
    "source",
    [
        "n = torch.cuda.device_count()",
        "if not torch.accelerator.is_available(): pass",
        "from torch.cuda import is_available",
    ],
)
def test_a_question_for_real_accelerators_is_seen(source):
    assert questions(source)
    assert not questions("from dpkit.accelerator import real_devices")


def test_one_file_alone_asks_for_real_accelerators():
    """Another would take simulated devices for some, as torch does."""
    asking = {path for path in MODULES if questions(path.read_text())}
    assert asking == {PACKAGE / "accelerator/found.py"}
