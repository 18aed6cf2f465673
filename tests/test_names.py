"""A public name of the package means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import dpkit

PACKAGE = Path(dpkit.__file__).parent


def names_defined(source):
    """Return the public names that a module defines at its top."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = getattr(node, "targets", None) or [node.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def names_defined_twice(package):
    """Return the names of the core that two modules define, with both."""
    modules = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        if module.parts[0] != "lab":
            for name in names_defined(path.read_text(encoding="utf-8")):
                modules[name].append(str(module))
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_a_name_of_the_core_means_one_thing():
    twice = names_defined_twice(PACKAGE)
    # Of processes and, in the same form, of simulated ranks.
    del twice["launch"]
    assert twice == {}


def test_a_name_in_two_modules_is_seen(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/a.py").write_text("name = 1\n")  # a chapter's
    (tmp_path / "a.py").write_text("from b import name\n\nname = _own = 1\n")
    assert names_defined_twice(tmp_path) == {}
    (tmp_path / "b.py").write_text("def name():\n    pass\n\n_own = 2\n")
    assert names_defined_twice(tmp_path) == {"name": ["a.py", "b.py"]}
