"""``import dpkit`` takes no time: its names are imported when asked for."""

import ast
import re
from pathlib import Path

import pytest

import dpkit
import dpkit.runs.ranks


def test_import_alone_imports_nothing(run_new):
    program = """
import sys, dpkit
print({"torch"} & set(sys.modules), [m for m in sys.modules if "dpkit." in m])
"""
    assert run_new(program) == "set() ['dpkit.lazy']\n"


def told_to_type_checkers(door):
    """Return the imports of a door that are not run: name -> module."""
    (block,) = (
        node
        for node in ast.parse(Path(door.__file__).read_text("utf-8")).body
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: line.module for line in block.body for alias in line.names
    }


# What a door has besides: defined in it, or above it.
BESIDES = {
    "dpkit": {"sim"},
    "dpkit.sim": {"as_cuda", "launch", "register"},
    "dpkit.runs": set(),
}


@pytest.mark.parametrize("door", [dpkit, dpkit.sim, dpkit.runs])
def test_names_are_where_type_checkers_find_them(door):
    told = told_to_type_checkers(door)
    told.pop("sim", None)
    assert told == door._DEFINED_IN
    assert {*told, *BESIDES[door.__name__]} == {*door.__all__}
    assert len(door.__all__) == len({*door.__all__})


def test_all_names_at_once():
    found = {}
    exec("from dpkit import *", found)
    assert set(dpkit.__all__) <= set(found)
    assert set(dpkit.__all__) <= set(dir(dpkit))


def parts():
    """Return the rooms and modules that the floor plan lists."""
    found = re.findall(r"``(\w+)/?``(?:, ``(\w+)``)? -- ", dpkit.__doc__)
    return sorted({name for pair in found for name in pair} - {"", "__main__"})


def test_a_part_is_imported_when_it_is_asked_for(run_new):
    program = f"""
import sys, dpkit
assert [m for m in sys.modules if "dpkit." in m] == ["dpkit.lazy"]
for name in {parts()}:
    assert name in dir(dpkit)
    assert getattr(dpkit, name) is sys.modules[f"dpkit.{{name}}"]
print(dpkit.batch_norm.convert.__name__)
"""
    assert run_new(program) == "convert\n"


def test_threads_may_ask_for_two_names_at_once(run_new):
    program = """
import sys, threading, torch, dpkit
sys.setswitchinterval(1e-6)
asked = [lambda: dpkit.sim.configure, lambda: dpkit.sim.launch] * 3
start = threading.Barrier(len(asked))
failed = []
def ask(one):
    start.wait()
    try:
        one()
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=ask, args=[one]) for one in asked]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
"""
    assert run_new(program) == "[]\n"


def test_what_is_listed_is_there():
    for name in dir(dpkit):
        getattr(dpkit, name)


@pytest.mark.parametrize("module", [dpkit, dpkit.sim, dpkit.runs])
def test_a_name_that_is_not_there(module):
    told = f"module '{module.__name__}' has no attribute 'nothing'"
    with pytest.raises(AttributeError, match=told):
        _ = module.nothing


def test_launch_stands_beside_the_devices_though_on_a_higher_floor(run_new):
    program = "import dpkit.sim; print(dpkit.sim.launch.__module__)"
    assert run_new(program) == "dpkit.runs.ranks\n"
    assert dpkit.sim.launch is dpkit.runs.ranks.launch
