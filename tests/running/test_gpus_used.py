"""The table of what has run on GPUs, of a run of notebooks."""

import os
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest

from tests.repository import ROOT
from tests.running.gpus_used import table

CELLS = (
    "import dpkit, torch; "
    "dpkit.sim.configure(num_devices=torch.cuda.device_count() + 1)",
    "many = 50 * dpkit.devices(1, kind='sim'); "
    "x = [torch.ones(3, device=d) for d in many]; del x",
    "sim = dpkit.devices(torch.cuda.device_count() + 1); "  # too many
    "x = dpkit.scatter(torch.arange(7.0), sim)",
    "torch.manual_seed(0); z = torch.ones(3)",  # PyTorch looks for GPUs
    "y = torch.ones(3, device=dpkit.devices(1)[0])",
    "z = y + 1",
    "z = torch.ones(3) + 1",
)


def cell(chapter, *gpus):
    name = f"book/{chapter}.ipynb::Cell 0"
    found = [("gpus used", list(gpus))]
    return SimpleNamespace(nodeid=name, user_properties=found)


def test_a_row_counts_cells_and_gpus():
    other = SimpleNamespace(nodeid="tests/a.py::b", user_properties=[])
    cells = [cell("b", 1), cell("a"), cell("b", 0, 1), other, cell("b")]
    assert table(cells) == [
        "cells  on GPUs  GPUs  chapter",
        "    1        0     0  a",
        "    3        2     2  b",
    ]
    assert table([other]) == []


@pytest.mark.cuda
def test_cells_of_gpus_are_told_from_those_of_simulated_devices(tmp_path):
    """Two cells work on a GPU.

    The second and the third cell use simulated devices. Those of the third
    hold their values on the GPU, and are new, as are their counts.
    """
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS]
    )
    nbformat.write(notebook, tmp_path / "some.ipynb")
    words = "-m pytest -q -p tests.running.gpus_used -p no:cacheprovider"
    options = "--nbval-lax --nbval-current-env some.ipynb"
    done = subprocess.run(
        [sys.executable, *words.split(), *options.split(), "--rootdir=."],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert "7 passed" in done.stdout, done.stdout
    assert "    7        2     1  some" in done.stdout, done.stdout


def environment():
    """Return an environment in which the plugin is found."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}
