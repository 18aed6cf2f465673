"""``import dpkit`` takes no time: its names are imported when asked for."""

import ast
import re
from pathlib import Path

import pytest

import dpkit
import dpkit.ranks


def test_import_alone_imports_nothing(run_new):
    program = """
import sys, dpkit
print({"torch"} & set(sys.modules), [m for m in sys.modules if "dpkit." in m])
"""
    assert run_new(program) == "set() []\n"


def told_to_type_checkers():
    """Return the imports of dpkit that are not run: name -> module."""
    (block,) = (
        node
        for node in ast.parse(Path(dpkit.__file__).read_text("utf-8")).body
        if isinstance(node, ast.If) and "not" not in ast.unparse(node.test)
    )
    return {
        alias.name: line.module for line in block.body for alias in line.names
    }


def test_names_are_where_type_checkers_find_them():
    told = told_to_type_checkers()
    assert told.pop("sim") == "dpkit"
    assert told == dpkit._DEFINED_IN
    assert sorted([*told, "sim"]) == sorted(dpkit.__all__)


def test_all_names_at_once():
    found = {}
    exec("from dpkit import *", found)
    assert set(dpkit.__all__) <= set(found)
    assert set(dpkit.__all__) <= set(dir(dpkit))


def parts():
    """Return the rooms and modules that the floor plan lists."""
    found = re.findall(r"``(\w+)/?``(?: itself)? -- ", dpkit.__doc__)
    return sorted({*found} - {"__main__"})


def test_a_part_is_imported_when_it_is_asked_for(run_new):
    program = f"""
import sys, dpkit
assert not [m for m in sys.modules if "dpkit." in m]
for name in {parts()}:
    assert name in dir(dpkit)
    assert getattr(dpkit, name) is sys.modules[f"dpkit.{{name}}"]
print(dpkit.batch_norm.convert.__name__)
"""
    assert run_new(program) == "convert\n"


def test_what_is_listed_is_there():
    for name in dir(dpkit):
        getattr(dpkit, name)


@pytest.mark.parametrize("module", [dpkit, dpkit.sim])
def test_a_name_that_is_not_there(module):
    told = f"module '{module.__name__}' has no attribute 'nothing'"
    with pytest.raises(AttributeError, match=told):
        _ = module.nothing


def test_launch_stands_beside_the_devices_though_on_a_higher_floor(run_new):
    program = "import dpkit.sim; print(dpkit.sim.launch.__module__)"
    assert run_new(program) == "dpkit.ranks\n"
    assert dpkit.sim.launch is dpkit.ranks.launch
