"""A run that failed ends with what repeats it."""

import pytest

pytest_plugins = ["pytester"]

ORDER = ("-p", "tests.running.order")
REPORT = "To report it, attach the file that this command writes:"
AGAIN = "--again=make test SHUFFLE=77"


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one", "two"])
def test_the_last_line_repeats_a_run_that_failed(pytester, run_tests, words):
    pytester.makepyfile("def test(): assert False")
    result = run_tests("again", *ORDER, "--shuffle=77", AGAIN, *words)
    assert result.stdout.lines[-2:] == [
        "To repeat this run in the same order (seed: 77): "
        "make test SHUFFLE=77",
        f"{REPORT} make test-report",
    ]
    assert result.stdout.str().count("To repeat") == 1


def test_without_a_seed(pytester, run_tests):
    pytester.makepyfile("def test(): assert False")
    again = "make test ENV='/my own/venv'"
    result = run_tests("again", *ORDER, f"--again={again}")
    assert result.stdout.lines[-2:] == [
        f"To repeat this run: {again}",
        f"{REPORT} make test-report 'ENV=/my own/venv'",
    ]


def test_a_run_that_passed_ends_as_ever(pytester, run_tests):
    pytester.makepyfile("def test(): pass")
    result = run_tests("again", *ORDER, "--shuffle=77", AGAIN)
    assert "To repeat" not in result.stdout.str()


def test_an_unlisted_skip_is_a_failure_too(pytester, run_tests, monkeypatch):
    pytester.makepyfile("import pytest\ndef test(): pytest.skip('a whim')")
    monkeypatch.setenv("CI", "true")
    skips = ("-p", "tests.running.skips")
    result = run_tests("again", *skips, "--again=make test")
    assert result.stdout.lines[-2] == "To repeat this run: make test"
