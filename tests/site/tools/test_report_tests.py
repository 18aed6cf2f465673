"""The file about a failed run says all that is needed, and no more."""

import json
import shlex
from pathlib import Path

import pytest
import report_tests

RUN = {
    "command": "make test ENV='/my own' ONLY=devices SHUFFLE=77",
    "seed": "77",
    "status": 1,
    "seconds": 812,
    "cores": 4,
    "gigabytes available": 5.5,
    "environment": {"ATEN_CPU_CAPABILITY": "default", "LANG": "C"},
    "failed": [
        {
            "name": "tests/test_b.py::test_it",
            "worker": "gw1",
            "when": "call",
            "printed": f"\x1b[91min {Path.home()}/mine: {report_tests.ROOT}/x",
        }
    ],
    "skipped": {"GPUs needed: 2, here: 1": 3},
    "files": {
        "gw0": ["tests/test_z.py"],
        "gw1": ["tests/test_c.py", "tests/test_b.py", "tests/test_a.py"],
    },
}


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    """Write the report of a run; return it, and what is printed."""
    record, file = tmp_path / "run.json", tmp_path / "report.md"
    monkeypatch.setattr(report_tests, "RECORD", record)
    monkeypatch.setattr(report_tests, "REPORT", file)

    def report(run):
        record.write_text(json.dumps(run))
        assert report_tests.main() == 0
        return file.read_text(), capsys.readouterr().out

    return report


@pytest.fixture
def quick(monkeypatch):
    """Ask no other program: torch takes seconds to say what it is."""
    monkeypatch.setattr(
        report_tests, "ask", lambda words, **variables: f"{variables}"
    )


def test_what_failed_and_where(report, quick):
    text, printed = report(RUN)
    assert "### tests/test_b.py::test_it\n" in text
    assert "In its call, by worker gw1." in text
    assert "- seed of the order: 77\n" in text
    assert "     3  GPUs needed: 2, here: 1" in text
    assert "torch 2." in text
    assert "is what to attach" in printed


def test_the_machine_is_asked_as_the_tests_ran(report):
    text, _ = report(RUN)
    assert "Kernels of torch for the CPU: DEFAULT\n" in text
    assert "CPU:\n" in text
    assert "ATEN_CPU_CAPABILITY=default\n" in text


def test_places_and_colours_are_left_out(report, quick):
    text, _ = report(RUN)
    assert "\x1b" not in text
    assert "in ~/mine: ./x" in text
    assert f"{Path.home()}/mine" not in text


def test_what_one_worker_ran_can_be_run_again():
    again = report_tests.repeat(RUN, "gw1")
    files = "FILES=tests/test_c.py tests/test_b.py"
    assert shlex.split(again) == [
        "PYTEST_XDIST_AUTO_NUM_WORKERS=1",
        *("make", "test", "ENV=/my own", "SHUFFLE=77", files),
    ]


def test_many_failures_are_named_but_not_printed(report, quick):
    failed = [
        RUN["failed"][0] | {"name": f"tests/test_b.py::test[{i}]"}
        for i in range(200)
    ]
    text, _ = report(RUN | {"failed": failed})
    assert text.count("````text\nin ~/mine") == report_tests.MOST_FAILURES
    assert "- tests/test_b.py::test[199]\n" in text


def test_a_run_that_passed_has_a_report_too(report, quick):
    text, _ = report(RUN | {"failed": [], "status": 0})
    assert "- failed: 0\n" in text


def test_there_is_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report_tests, "RECORD", tmp_path / "none.json")
    assert report_tests.main() == 1
    assert "run: make test" in capsys.readouterr().err
