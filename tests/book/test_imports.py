"""What a module of the book may ask torch, and whose program it is."""

import sysconfig
from pathlib import Path

import dpbook
from dpkit.sim import places
from tests.kit.test_imports import questions

PACKAGE = Path(dpbook.__file__).parent
# Programs of plain PyTorch, which readers copy and run without dpkit. So they
# have to ask torch; nor do they use simulated devices, which it would count.
LISTINGS = {
    PACKAGE / "cheat_sheet/minimal_ddp.py",
    PACKAGE / "data_parallelism_concise/ddp_program.py",
    PACKAGE / "devices/six_times.py",
    PACKAGE / "three_ways/data_parallel.py",
    PACKAGE / "three_ways/pipeline.py",
    PACKAGE / "three_ways/split_layers.py",
}


def test_the_book_asks_the_library_for_real_accelerators():
    """torch would take simulated devices for some."""
    modules = PACKAGE.rglob("*.py")
    asking = {path for path in modules if questions(path.read_text())}
    assert asking == LISTINGS


def test_the_book_is_the_program_in_which_races_are_found():
    """In a clone, and where it is installed beside PyTorch."""
    installed = Path(sysconfig.get_path("purelib"))
    for folder in (PACKAGE, installed / "dpbook"):
        file = str(folder / "overlap/runs.py")
        assert places._kind(file, "dpbook") == "program"
