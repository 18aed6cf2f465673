"""What the targets of the Makefile start."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent


def dry_run(*words, **environment):
    """Return what make would run."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        [
            "make",
            "-n",
            "--no-print-directory",
            "-C",
            REPOSITORY,
            *words,
            f"ENV={sys.prefix}",
        ],
        capture_output=True,
        text=True,
        env=kept | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def option(name, text):
    """Return the value of an option of pytest."""
    found = re.findall(rf"--{name}=(\"[^\"]*\"|\S+)", text)
    (value,) = set(found)
    return shlex.split(value)[0]


def test_the_tests_begin_with_the_machine():
    run = dry_run("test")
    assert run.index("fit_for_tests.py") < run.index("-m pytest")


@pytest.mark.parametrize("target", "test test-fast coverage".split())
def test_a_seed_is_given_to_pytest_and_repeated(target):
    run = dry_run(target, "SHUFFLE=12345")
    assert option("shuffle", run) == "12345"
    again = option("again", run)
    assert again.startswith(f"make {target} ")
    assert "SHUFFLE='12345'" in again
    assert "--shuffle" not in dry_run(target)


def test_files_take_the_place_of_all():
    run = dry_run("test", "FILES=tests/test_a.py tests/test_b.py")
    assert run.rstrip().endswith(" tests/test_a.py tests/test_b.py")
    assert "FILES='tests/test_a.py tests/test_b.py'" in option("again", run)
    assert dry_run("test", FILES="x") == dry_run("test")


def test_continuous_integration_shuffles():
    workflow = REPOSITORY / ".github" / "workflows" / "cpu.yml"
    for file in (REPOSITORY / ".ci" / "run", workflow):
        assert 'make test SHUFFLE="$' in file.read_text(encoding="utf-8")
