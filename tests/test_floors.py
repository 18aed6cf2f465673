"""A module imports only from floors below its own."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpkit

PACKAGE = Path(dpkit.__file__).parent
FLOORS = [
    {"theory"},
    {"accelerator", "arguments"},
    {"sim"},
    {
        "machine",
        "losses",
        "clipping",
        "batch_norm",
        "buckets",
        "processes",
    },
    {"streams"},
    {"placement", "plan_runner"},
    {"library"},
    {"collectives"},
    {
        "data_parallel",
        "sharding",
        "network_partition",
        "layer_partition",
        "ranks",
        "calibration",
    },
    {"evaluate"},
    {"training"},
    {"lab"},
    {"job"},
    {"commands"},
    {"__main__"},
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


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "theory").rglob("*.py")), ids=lambda p: p.stem
)
def test_theory_needs_the_standard_library_alone(path):
    """A browser runs it under an empty dpkit/__init__.py."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            first = name.partition(".")[0]
            known = name.startswith("dpkit.theory")
            assert known or first in sys.stdlib_module_names, name


def test_theory_runs_under_an_empty_package(tmp_path):
    """Without torch: a timeline is made and drawn."""
    (tmp_path / "dpkit").mkdir()
    (tmp_path / "dpkit/__init__.py").write_text("")
    shutil.copytree(PACKAGE / "theory", tmp_path / "dpkit/theory")
    program = (
        "import sys\n"
        "from dpkit.theory.clock.clock import Clock\n"
        "from dpkit.theory.hardware.clusters import cluster\n"
        "from dpkit.theory.timeline.timeline import Timeline\n"
        "clock = Clock(cluster())\n"
        "timeline = Timeline(clock.record())\n"
        "clock.compute(0, 'mm', 1e-3)\n"
        "assert '<svg' in timeline._repr_svg_()\n"
        "assert not {'torch', 'matplotlib', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-c",
         f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{program}"],
        check=True,
    )  # fmt: skip


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
# Programs of plain PyTorch, which readers copy and run without dpkit. So they
# have to ask torch; nor do they use simulated devices, which it would count.
LISTINGS = {
    PACKAGE / "lab/cheat_sheet/minimal_ddp.py",
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
    assert asking == {PACKAGE / "accelerator/found.py"} | LISTINGS
