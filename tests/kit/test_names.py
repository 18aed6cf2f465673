"""A public name of the library means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import dpkit

PACKAGE = Path(dpkit.__file__).parent


def names_defined(source):
    """Return the public names that a module defines at its top."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) or (
            isinstance(node, ast.AnnAssign) and node.value
        ):
            targets = getattr(node, "targets", None) or [node.target]
            for target in targets:
                names |= _names_bound(target)
    return {name for name in names if not name.startswith("_")}


def _names_bound(target):
    """Return the names that an assignment binds: ``a, (b, *c) = …`` three."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Starred):
        return _names_bound(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return {name for each in target.elts for name in _names_bound(each)}
    return set()  # an attribute or an item: no name of the module


def names_defined_twice(package):
    """Return the names that two modules of a package define, with both."""
    modules = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in names_defined(path.read_text(encoding="utf-8")):
            modules[name].append(str(path.relative_to(package)))
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_a_name_of_the_library_means_one_thing():
    twice = names_defined_twice(PACKAGE)
    # Of processes and, in the same form, of simulated ranks.
    del twice["launch"]
    assert twice == {}


@pytest.mark.parametrize(
    "line",
    [
        "name: int = 1",
        "other, name = 1, 2",
        "[other, (name, last)] = 1, (2, 3)",
        "first, *name = 1, 2, 3",
        "one = other, name = 1, 2",
    ],
)
def test_a_name_is_seen_however_it_is_bound(line):
    assert "name" in names_defined(line)


def test_an_item_and_an_attribute_are_no_names_of_a_module():
    assert names_defined("name.x, name[0] = 1, 2") == set()


def test_a_type_alone_defines_no_name():
    assert names_defined("name: int") == set()


def test_a_name_in_two_modules_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("from b import name\n\nname = _own = 1\n")
    assert names_defined_twice(tmp_path) == {}
    (tmp_path / "b.py").write_text("def name():\n    pass\n\n_own = 2\n")
    assert names_defined_twice(tmp_path) == {"name": ["a.py", "b.py"]}
