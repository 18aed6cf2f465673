"""The size of dpkit: how many lines, files and long functions it may have.

A commit that adds a capability raises ``MOST_LINES`` by its lines, and its
message says why. The other numbers may only fall.
"""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import dpkit

PACKAGE = Path(dpkit.__file__).parent
MOST_LINES = 33_143
MOST_LINES_IN_RANKS = 900  # which a chapter lists
MOST_LINES_IN_A_FILE = 300
MOST_FILES_IN_A_FOLDER = 20
MOST_LINES_IN_A_FUNCTION = 25  # of code
LONG_FUNCTIONS = 11  # how many are longer


def files(package):
    return sorted(package.rglob("*.py"))


def num_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def long_files(package):
    return {
        str(path.relative_to(package)): num_lines(path)
        for path in files(package)
        if num_lines(path) > MOST_LINES_IN_A_FILE
    }


def full_folders(package):
    """Return folder -> number of its files, where these are too many."""
    counts = Counter(path.parent for path in files(package))
    return {
        str(folder.relative_to(package)): count
        for folder, count in counts.items()
        if count > MOST_FILES_IN_A_FOLDER
    }


def code_lines(source):
    """Return the numbers of the lines that are not empty, nor comments."""
    lines = enumerate(source.splitlines(), start=1)
    return {i for i, x in lines if x.strip() and x.lstrip()[0] != "#"}


def long_functions(package):
    """Return "file: function" -> lines of code, docstring and comments out."""
    found = {}
    for path in files(package):
        source = path.read_text(encoding="utf-8")
        code = code_lines(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = code & set(range(node.lineno, node.end_lineno + 1))
                if ast.get_docstring(node):
                    text = node.body[0]
                    lines -= set(range(text.lineno, text.end_lineno + 1))
                if len(lines) > MOST_LINES_IN_A_FUNCTION:
                    place = f"{path.relative_to(package)}: {node.name}"
                    found[place] = len(lines)
    return found


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
    for path in files(package):
        module = path.relative_to(package)
        if module.parts[0] != "lab":
            for name in names_defined(path.read_text(encoding="utf-8")):
                modules[name].append(str(module))
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_the_package_is_small():
    assert sum(map(num_lines, files(PACKAGE))) <= MOST_LINES


def test_ranks_are_small():
    found = sum(map(num_lines, files(PACKAGE / "ranks")))
    assert 0 < found <= MOST_LINES_IN_RANKS


def test_no_file_is_long():
    assert long_files(PACKAGE) == {}


def test_no_folder_has_many_files():
    assert full_folders(PACKAGE) == {}


def test_few_functions_are_long():
    """If there are fewer than are allowed, lower LONG_FUNCTIONS."""
    found = long_functions(PACKAGE)
    assert len(found) == LONG_FUNCTIONS, found


def test_a_name_of_the_core_means_one_thing():
    twice = names_defined_twice(PACKAGE)
    del twice[
        "launch"
    ]  # of processes, and in the same form of simulated ranks
    assert twice == {}


@pytest.fixture
def package(tmp_path):
    """Return a package in which each budget is just kept."""
    body = "".join(f"    x{i} = (\n        {i})  # one\n" for i in range(12))
    function = f'def f():\n    """Do."""\n    # Say.\n\n{body}'
    (tmp_path / "a.py").write_text("from b import name\n\n" + function)
    (tmp_path / "long.py").write_text("# a comment\n" * 300)
    (tmp_path / "lab").mkdir()
    for i in range(20):
        (tmp_path / f"lab/m{i}.py").write_text("name: int = 1\n")
    return tmp_path


def test_what_is_within_its_budget_passes(package):
    assert long_files(package) == {}
    assert full_folders(package) == {}
    assert long_functions(package) == {}
    assert names_defined_twice(package) == {}


def test_what_is_over_its_budget_is_seen(package):
    with (package / "a.py").open("a") as file:
        file.write("    return 1\n\n\nname = _own = 1\n")
    with (package / "long.py").open("a") as file:
        file.write("def name():\n    pass\n")
    (package / "lab/one_more.py").write_text("_own = 2\n")
    assert long_files(package) == {"long.py": 302}
    assert full_folders(package) == {"lab": 21}
    assert long_functions(package) == {"a.py: f": 26}
    assert names_defined_twice(package) == {"name": ["a.py", "long.py"]}
