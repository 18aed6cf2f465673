"""Which tests `make one` runs for a file."""

from pathlib import Path

import pytest
from testing import run_one

from tests.repository import ROOT


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("dpkit/losses.py", {"tests/kit/test_losses.py"}),
        ("scripts/check/words.py", {"tests/site/tools/test_words.py"}),
        (
            "scripts/pages/slim_site.py",
            {"tests/site/pages/test_files_of_page.py"},
        ),
        (
            "scripts/environment/gpu_fits.py",
            {"tests/site/tools/test_environments.py"},
        ),
        (
            "scripts/teaching/assignment/seeded.py",
            {"tests/site/tools/test_assignment.py"},
        ),
        ("book/dpbook/common/show.py", {"tests/book/test_show.py"}),
        ("dpkit/buckets/rounds.py", {"tests/kit/test_buckets.py"}),
        # No test has its name or that of its folder: those that import it.
        ("dpkit/processes/starting.py", {"tests/kit/test_processes.py"}),
    ],
)
def test_the_tests_of_a_file(file, tests):
    found = {str(p.relative_to(ROOT)) for p in run_one.tests_of(Path(file))}
    assert tests <= found
    assert len(found) < 10


def test_a_room_of_scripts_is_no_subject_of_tests():
    """Its folder is `pages`, and it is not what `test_pages.py` tests."""
    found = run_one.tests_of(Path("scripts/pages/serve.py"))
    assert [path.name for path in found] == ["test_serve.py"]


def test_examples_and_chapters():
    words = run_one.options(Path("dpkit/losses.py"))
    assert "--doctest-modules" in words
    words = run_one.options(Path("book/devices.ipynb"))
    assert "--nbval" in words
    words = run_one.options(Path("tests/kit/test_losses.py"))
    assert words[-1] == "tests/kit/test_losses.py"


def test_what_is_not_there_is_refused(capsys):
    assert run_one.main("dpkit/nothing.py") == 2
    assert "(FILE: 'dpkit/nothing.py')" in capsys.readouterr().out


def test_a_file_that_no_test_names_does_not_run_them_all(capsys, monkeypatch):
    monkeypatch.setattr(run_one, "tests_of", lambda file: [])
    assert run_one.main("scripts/record.py") == 2
    assert "no test names this file" in capsys.readouterr().out
