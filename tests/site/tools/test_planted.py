"""A fault in a notebook is found, and the message says what and where.

``run_cells`` runs it, and ``execute_notebooks`` compares or stores it.
"""

import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.repository import ROOT

SCRIPT = ROOT / "scripts" / "execute_notebooks.py"
RUN = [sys.executable, SCRIPT]
NBVAL = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "--nbval", "--nbval-current-env", "--nbval-kernel-name=python3",
         "--nbval-kernel-startup-timeout=1200"]  # fmt: skip

STEADY = {"right": "print(2 + 2)", "last": "[1, 2]"}
UNSTEADY = {
    "right": "print(2 + 2)",
    "clock": "import time\n\nprint(time.time())",
    "order": "print(*{str(n) for n in range(20)})",
}


def store(path, sources):
    cells = []
    for name, source in sources.items():
        cell = nbformat.v4.new_code_cell(source)
        cell.id = name
        cells.append(cell)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def run(command, folder):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def executed(path, *flags):
    return run([*RUN, *flags, path.name], path.parent)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """Store a notebook that is right, then plant a stale and an unrun cell."""
    path = tmp_path_factory.mktemp("faulty") / "page.ipynb"
    shutil.copy(ROOT / "book" / "conftest.py", path.parent)
    store(path, STEADY | {"stale": "print(5)", "unrun": "print(6)"})
    assert executed(path)[0] == 0
    notebook = nbformat.read(path, as_version=4)
    stale, unrun = notebook.cells[2:]
    stale.outputs[0].text = "4\n"
    unrun.outputs, unrun.execution_count = [], None
    nbformat.write(notebook, path)
    return path


def test_the_script_names_the_cells_that_are_not_as_stored(faulty):
    status, said = executed(faulty, "--check")
    assert status == 1
    for name in ("stale", "unrun"):
        assert f"page.ipynb: cell {name!r} is not as stored" in said
    for name in STEADY:
        assert repr(name) not in said
    assert '-      "4\\n"' in said
    assert '+      "5\\n"' in said
    assert '-   "execution_count": null' in said


def test_nbval_names_the_cell_that_is_stale(faulty):
    status, said = run([*NBVAL, "--color=no", faulty.name], faulty.parent)
    assert status == 1
    assert "FAILED page.ipynb::Cell 2" in said
    assert "print(5)" in said
    assert "'4\\n' == '5\\n'" in said


def test_two_runs_tell_a_clock_and_the_order_of_a_set(tmp_path):
    path = tmp_path / "page.ipynb"
    store(path, UNSTEADY)
    assert executed(path)[0] == 0
    status, said = executed(path, "--check")
    assert status == 1
    assert "page.ipynb: cell 'clock' is not as stored" in said
    assert "page.ipynb: cell 'order' is not as stored" in said
    assert "'right'" not in said


def test_a_cell_that_fails_is_named(tmp_path):
    path = tmp_path / "page.ipynb"
    store(path, {"right": "x = 1", "wrong": "assert x == 2"})
    before = path.read_bytes()
    status, said = executed(path)
    assert status == 1
    assert "page.ipynb: a cell failed" in said
    assert "assert x == 2" in said
    assert path.read_bytes() == before
