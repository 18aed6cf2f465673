"""A program of the chapter that fails says why, and gives no result."""

from types import SimpleNamespace

import pytest

from dpbook.three_ways.running import real_processes, simulated_gpus


@pytest.mark.parametrize("run", [simulated_gpus, real_processes])
def test_a_program_that_fails_says_why(run, tmp_path):
    path = tmp_path / "failing.py"
    path.write_text("raise SystemExit('no such weights: start.pt')\n")
    with pytest.raises(RuntimeError, match=r"no such weights: start\.pt"):
        run(SimpleNamespace(__file__=str(path)), "start.pt")
