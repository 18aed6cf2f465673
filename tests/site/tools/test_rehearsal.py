"""The rehearsal of GPUs: what is run, and how printed cells are compared."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import rehearse
from assignment.chapter import Exercise
from rehearsal import graders, parts, printed
from rehearsal.printed import masked

from tests.repository import ROOT


@pytest.mark.parametrize(
    ("stored", "on_gpus"),
    [
        ("device(type='sim', index=1)", "device(type='cuda', index=1)"),
        ("device(type=&#x27;sim&#x27;, index=1)",
         "device(type=&#x27;cuda&#x27;, index=1)"),
        ("all on sim:0, sim:3", "all on cuda:0, cuda:3"),
        ("Timer(97.62 µs, simulated (v100, nvlink2))",
         "Timer(1.21 ms, measured)"),
        ("a step takes 3.5 ms", "a step takes 12,345.0 s"),
        ("sim:0   516,272", "cuda:0    516,272"),
    ],
)  # fmt: skip
def test_what_differs_by_right_is_masked(stored, on_gpus):
    assert stored != on_gpus
    assert masked(stored) == masked(on_gpus)


@pytest.mark.parametrize(
    ("stored", "on_gpus"),
    [
        ("4 messages of sim:0", "5 messages of cuda:0"),
        ("3.5 ms, 12 kB", "4.5 ms, 13 kB"),
        ("on sim:1", "on cuda:0"),
        ("device(type='sim', index=1)", "device(type='cuda', index=0)"),
        ("device(type='sim', index=1)", "device(type='cpu')"),
        ("equal: True", "equal: False"),
        ("2 times as fast", "3 times as fast"),
        ("tensor([1., 2.])", "tensor([1., 3.])"),
    ],
)
def test_other_differences_are_seen(stored, on_gpus):
    assert masked(stored) != masked(on_gpus)


def test_numbers_are_masked_where_that_is_asked_for():
    row = "a table  1,024  3.5  -2e-05"
    other = "a table   9  12.25  7"
    assert masked(row) != masked(other)
    assert masked(row, numbers=True) == masked(other, numbers=True)
    assert masked("one 1", True) != masked("two 1", True)


def test_exempt_cells_are_those_of_chapters():
    chapters = {}
    for path in (ROOT / "book").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        chapters[path.stem] = {c["id"] for c in cells}
    assert [*printed.unknown(chapters)] == []


def test_an_exempt_cell_that_is_gone_is_seen(monkeypatch):
    exempt = {"numbers": {"a": {"one": "why"}}, "all": {"b": {"two": "why"}}}
    monkeypatch.setattr(printed, "EXEMPT", exempt)
    found = [*printed.unknown({"a": {"one"}, "b": {"three"}})]
    assert found == ["b: two"]


def test_each_exempt_cell_has_a_reason():
    for tables in printed.EXEMPT.values():
        for cells in tables.values():
            assert all(len(reason) > 10 for reason in cells.values())


@pytest.mark.parametrize("num_gpus", [1, 4])
def test_a_whole_rehearsal_has_each_chapter_and_what_readme_says(
    num_gpus, tmp_path
):
    names = [p.name for p in parts.whole_rehearsal(num_gpus, tmp_path)]
    assert len(set(names)) == len(names)
    for path in (ROOT / "book").glob("*.ipynb"):
        assert f"{path.stem} on {num_gpus}" in names
    assert "first hour: -m dpkit devices" in names
    others = "cuda-tests calibrate gpu-report graders train evaluate".split()
    assert set(others) <= set(names)


def test_the_tests_of_the_edge_exist():
    for name in parts.EDGE:
        assert (ROOT / "tests" / name).exists()
    for name in parts.NOT_DOUBLED:
        file, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert f"def {function}(" in (ROOT / "tests" / file).read_text("utf-8")


# -- how a part ends


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    """Run a program of bash in place of the double."""
    monkeypatch.setattr(rehearse, "LOGS", tmp_path)
    double = tmp_path / "tests/cuda_double/run"
    double.parent.mkdir(parents=True)
    monkeypatch.setattr(rehearse, "ROOT", tmp_path)

    def run(source, limit=10.0):
        double.write_text(f"#!/bin/bash\n{source}\n")
        double.chmod(0o755)
        return rehearse.run(parts.Part("a part", ("x",), 2, limit))

    return run


def test_a_part_that_passes(outcome):
    found = outcome('echo "$@"')
    assert found.fault == ""
    assert found.last_line == "2 x"


def test_a_part_rounds_as_a_gpu_might(outcome, monkeypatch):
    monkeypatch.delenv("CUDA_DOUBLE_ROUNDING", raising=False)
    source = 'echo "rounding: $CUDA_DOUBLE_ROUNDING"'
    assert outcome(source).last_line == "rounding: 1"
    monkeypatch.setenv("CUDA_DOUBLE_ROUNDING", "7")
    assert outcome(source).last_line == "rounding: 7"
    monkeypatch.setenv("CUDA_DOUBLE_ROUNDING", "")
    assert outcome(source).last_line == "rounding: "


def test_graders_that_say_wrong_things_are_named(monkeypatch):
    right, wrong = (f"def five(): return {n}" for n in (5, 6))
    five = Exercise("five", "", "", "", setup="", stub=right, solution=wrong)
    monkeypatch.setattr(graders, "EXERCISES", [five])
    monkeypatch.setattr(
        graders, "failure", lambda f: None if f() == 5 else "it is 6"
    )
    assert graders.faults() == [
        "five: the solution is refused (it is 6)",
        "five: the stub is accepted",
    ]
    five = five._replace(stub=wrong, solution=right)
    monkeypatch.setattr(graders, "EXERCISES", [five])
    assert graders.faults() == []


def test_a_part_that_fails(outcome):
    assert outcome("exit 3").fault == "status 3"


def test_a_part_that_computes_without_end_is_cut(outcome, monkeypatch):
    monkeypatch.setattr(rehearse.limited, "LOOK_SECONDS", 0.05)
    fault = outcome("while true; do :; done", limit=0.5).fault
    assert fault.startswith("cut: it has used more than 0 s of the cores, or")


def test_a_race_is_a_failure_also_of_a_part_that_passes(outcome):
    found = outcome('echo "RACE: one" >> "$CUDA_DOUBLE_LOG"')
    assert found.fault == "found: 1, the first: RACE: one"


def test_a_failure_of_one_part_fails_the_rehearsal(outcome, capsys):
    outcome('[ "$2" = good ]')
    good, bad = (parts.Part(name, (name,), 1) for name in ("good", "bad"))
    assert rehearse.rehearse([good, bad, good]) == 1
    told = capsys.readouterr().out
    assert "bad: FAILED (status 1)" in told


PROGRAM = """
import sys
from pathlib import Path
import rehearse
from rehearsal.parts import Part
rehearse.ROOT = rehearse.LOGS = Path(sys.argv[1])
rehearse.AT_ONCE = 2
rehearse.rehearse([Part(f"part {i}", ("x",), 1) for i in range(5)])
"""


def test_ctrl_c_ends_all_parts_and_begins_none(tmp_path, wait_until_ended):
    double = tmp_path / "tests/cuda_double/run"
    double.parent.mkdir(parents=True)
    double.write_text(f"#!/bin/bash\necho $$ >> {tmp_path}/pids\nsleep 3000\n")
    double.chmod(0o755)
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}/scripts:{ROOT}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = tmp_path / "pids"
    deadline = time.monotonic() + 1000
    while time.monotonic() < deadline:
        if pids.exists() and len(pids.read_text().split()) == 2:
            break
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in run.communicate(timeout=1000)[1]
    begun = [int(pid) for pid in pids.read_text().split()]
    assert len(begun) == 2
    wait_until_ended(begun)
