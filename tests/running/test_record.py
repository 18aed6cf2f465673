"""A run keeps what a report of it needs."""

import json

import pytest

pytest_plugins = ["pytester"]

FAILING = """
import pytest

def test_fails():
    print("printed before")
    assert 3 == 4

@pytest.fixture
def broken():
    raise OSError("no fixture today")

def test_has_no_fixture(broken):
    pass

def test_is_skipped():
    pytest.skip("a whim")

def test_passes():
    print("passed over")
"""


@pytest.fixture
def record(pytester, run_tests):
    """Run tests, and return what the run has kept."""

    def record(*words):
        options = ("-p", "tests.running.again", "-p", "tests.running.order")
        run_tests("record", *options, *words)
        file = pytester.path / "_build" / "test-run.json"
        return json.loads(file.read_text()) if file.exists() else None

    return record


@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["none", "one"])
def test_failed_tests_are_kept_with_what_they_printed(pytester, record, words):
    pytester.makepyfile(test_a=FAILING)
    run = record("--again=make test", *words)
    first, second = run["failed"]
    worker = "gw0" if words else "main"
    assert (first["name"], first["worker"], first["when"]) == (
        ("test_a.py::test_fails", worker, "call")
    )
    assert "assert 3 == 4" in first["printed"]
    assert "printed before" in first["printed"]
    assert (second["name"], second["when"]) == (
        ("test_a.py::test_has_no_fixture", "setup")
    )
    assert "no fixture today" in second["printed"]
    assert run["skipped"] == {"a whim": 1}
    assert (run["command"], run["seed"], run["status"]) == (
        ("make test", None, 1)
    )
    assert "passed over" not in json.dumps(run)


def test_files_are_kept_in_the_order_of_each_worker(pytester, record):
    names = [f"test_{i}.py" for i in range(6)]
    tests = "def test_one(): pass\ndef test_two(): pass"
    pytester.makepyfile(**{name[:-3]: tests for name in names})
    whole = record("--again=x", "--shuffle=5")["files"]["main"]
    assert sorted(whole) == names != whole
    words = "-n 2 --dist loadscope --no-loadscope-reorder".split()
    files = record("--again=x", "--shuffle=5", *words)["files"]
    for ran in files.values():
        assert ran == sorted(ran, key=whole.index)
    assert sorted([*files["gw0"], *files["gw1"]]) == names


def test_a_file_that_cannot_be_read_is_kept(pytester, record):
    pytester.makepyfile(test_a="import nowhere_at_all")
    (failed,) = record("--again=x", "-n", "2")["failed"]
    assert failed["when"] == "collect"
    assert "nowhere_at_all" in failed["printed"]


def test_no_secret_is_kept(pytester, record, monkeypatch):
    pytester.makepyfile("def test(): pass")
    monkeypatch.setenv("GITHUB_TOKEN", "the secret")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    run = record("--again=x")
    assert run["environment"]["MKL_CBWR"] == "COMPATIBLE"
    assert "the secret" not in json.dumps(run)
    assert "PATH" not in run["environment"]


def test_a_run_that_no_target_started_keeps_nothing(pytester, record):
    pytester.makepyfile("def test(): assert False")
    assert record() is None
