"""A test that failed once is flaky; a fault, or a second such test, fails."""

import itertools
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from testing import report_tests

from tests.running import second_try

pytest_plugins = ["pytester"]

TESTS = "def test_one(): pass\ndef test_two(): pass"
FLAKY = """
from pathlib import Path
first, seen = not Path("seen").exists(), Path("seen").touch()
assert not first
"""
FLAKY_TEST = "def test():" + FLAKY.replace("\n", "\n    ")
SKIPS = "import pytest\ndef test(): pytest.skip('{reason}')"
SHARED = "--dist loadscope --no-loadscope-reorder".split()
WHOLE = [*SHARED, "-v", "--junitxml=_build/test-run.xml"]


def files_in(lines):
    """Return the files whose tests stand in a report, in order."""
    names = [
        Path(line.split("::")[0]).stem
        for line in lines
        if " PASSED " in line or " SKIPPED " in line
    ]
    return list(dict.fromkeys(names))


def test_a_flaky_chapter_is_named_and_reported(
    pytester, run_tests, monkeypatch
):
    notebook = nbformat.v4.new_notebook()
    cells = f"{FLAKY}\nx = 1", "x;"
    notebook.cells = [*map(nbformat.v4.new_code_cell, cells)]
    nbformat.write(notebook, pytester.path / "chapter.ipynb")
    names = [f"test_{i}.py" for i in range(6)]
    pytester.makepyfile(**{name[:-3]: TESTS for name in names})
    pytester.makepyfile(test_5=SKIPS.format(reason="GPUs needed: 2"))
    monkeypatch.setenv("GITHUB_TOKEN", "the secret")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("CI", "true")
    nbval = [
        "--nbval", "--nbval-current-env", "--nbval-kernel-name=python3",
        "--nbval-kernel-startup-timeout=1200",
    ]  # fmt: skip
    result = run_tests(
        "second_try order skips workers",
        *("-n", "2", "--shuffle=77", *nbval, *WHOLE, "."),
    )
    lines = result.stdout.lines
    assert result.ret == 0
    assert lines[-1] == "flaky: chapter.ipynb::Cell 0"
    assert "order: shuffled (seed: 77)" in lines
    assert any(line.startswith("cores: ") for line in lines)
    file = pytester.path / "_build" / "test-run.json"
    run = json.loads(file.read_text())
    assert run["flaky"] == "chapter.ipynb::Cell 0"
    # Each worker's files are in the order of the seed.
    collected = run_tests("order", "--collect-only", "-q", "--shuffle=77")
    order = [n for n in names if n[:-3] in collected.stdout.str()]
    order.sort(key=collected.stdout.str().index)
    ran = [[n for n in files if n in names] for files in run["ran"].values()]
    assert sorted(itertools.chain(*ran)) == names
    assert all(files == sorted(files, key=order.index) for files in ran)
    # The chapter was tried again, alone, and then after what its worker had
    # run before it.
    (files,) = (f for f in run["ran"].values() if "chapter.ipynb" in f)
    before = files[: files.index("chapter.ipynb")]
    alone = lines.index("tried again, alone: chapter.ipynb::Cell 0")
    after = lines.index(
        f"tried again, after {len(before)} files: chapter.ipynb::Cell 0"
    )
    assert files_in(lines[alone:after]) == ["chapter"]
    assert files_in(lines[after:]) == [
        Path(name).stem for name in [*before, "chapter.ipynb"]
    ]

    # What `make test-report` makes of it.
    asked = []
    monkeypatch.setattr(report_tests, "ROOT", pytester.path)
    monkeypatch.setattr(
        report_tests,
        "output_of",
        lambda *words: asked.append(words) or "facts",
    )
    assert report_tests.main() == 0
    text = (pytester.path / report_tests.REPORT).read_text()
    assert "- failures: 2\n- skipped: 1\n- tests: 13\n" in text
    assert "- flaky: chapter.ipynb::Cell 0\n" in text
    assert "### chapter.ipynb::Cell 0\n" in text
    assert "assert not first" in text
    assert "secret" not in text
    assert "\x1b" not in text
    assert str(Path.home()) not in text
    for files in run["ran"].values():
        assert f"--shuffle=77 {shlex.join([*nbval, *SHARED])}" in text
        assert f"-n 0 {shlex.join(files)}\n" in text
    words = asked[-1]
    assert words[0] == "env"
    assert "MKL_CBWR=COMPATIBLE" in words
    assert words[-3:] == (sys.executable, "-c", report_tests.MACHINE)


def test_a_fault_of_order_fails_again(pytester, run_tests):
    pytester.makepyfile(
        test_a="import os\ndef test(): os.environ['LEFT'] = 'here'",
        test_b="import os\ndef test(): assert 'LEFT' not in os.environ",
        test_c="def test(): pass",
    )
    result = run_tests("second_try order", *SHARED, "-n", "1")
    text = result.stdout.str()
    assert result.ret == 1
    assert "tried again, alone: test_b.py::test" in text
    assert "tried again, after 1 files: test_b.py::test" in text
    assert result.stdout.lines[-1] == "To report this run: make test-report"


def test_a_fault_of_its_own_is_not_looked_for_in_the_order(
    pytester, run_tests
):
    pytester.makepyfile(
        test_a="def test(): pass",
        test_b="def test(): assert not 'a fault'",
        test_c="def test(): pass",
    )
    result = run_tests("second_try order", *SHARED, "-n", "1")
    text = result.stdout.str()
    assert result.ret == 1
    assert "tried again, alone: test_b.py::test" in text
    assert "tried again, after" not in text


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Give a test that failed as the last of files; list what runs again."""

    def tried(*files):
        config = SimpleNamespace(
            getoption=lambda name, default=None: [],
            invocation_params=SimpleNamespace(args=["-q"]),
            rootpath=tmp_path,
        )
        heard, runs = second_try.SecondTry(config), []
        monkeypatch.setattr(
            heard, "passes", lambda title, files: runs.append(files) or True
        )
        heard.failed = {files[-1]: (files[-1], [*files])}
        heard.try_again(SimpleNamespace(exitstatus=1))
        assert heard.flaky == files[-1]
        return runs

    return tried


def test_chapters_before_it_do_not_run_again(tried):
    assert tried("a.py", "b.ipynb", "c.py") == [["c.py"], ["a.py", "c.py"]]
    assert tried("b.ipynb", "c.py") == [["c.py"]]
    assert tried("a.py", "b.ipynb") == [["b.ipynb"], ["a.py", "b.ipynb"]]


def test_a_flaky_test_hides_no_unlisted_skip(pytester, run_tests, monkeypatch):
    pytester.makepyfile(
        test_a=FLAKY_TEST,
        test_b=SKIPS.format(reason="a whim"),
        test_c="import pytest; pytest.importorskip('nowhere_at_all')",
    )
    monkeypatch.setenv("CI", "true")
    result = run_tests("second_try order skips", *SHARED, "-n", "2")
    text = result.stdout.str()
    assert result.ret == 1
    assert "skipped tests by reason: 2" in text
    assert "test_b.py::test: a whim" in text
    assert "could not import 'nowhere_at_all'" in text
    assert result.stdout.lines[-1] == "flaky: test_a.py::test"
    named = pytester.path / "_build" / "flaky.txt"
    assert named.read_text() == "test_a.py::test\n"


@pytest.fixture
def finish(tmp_path, monkeypatch):
    """End a run of these failed tests; return what is tried again."""

    def finish(*failed, status=1, **options):
        config = SimpleNamespace(
            getoption=lambda name, default=(): options.get(name, default),
            invocation_params=SimpleNamespace(args=["-q"]),
            rootpath=tmp_path,
        )
        heard, tried = second_try.SecondTry(config), []
        monkeypatch.setattr(heard, "try_again", tried.append)
        worker = SimpleNamespace(gateway=SimpleNamespace(id="gw0"))
        for name in failed:
            report = SimpleNamespace(nodeid=name, failed=True, node=worker)
            if "::" in name:
                heard.pytest_runtest_logreport(report)
            else:
                heard.pytest_collectreport(report)
        [*heard.pytest_sessionfinish(SimpleNamespace(exitstatus=status))]
        heard.pytest_unconfigure()
        return len(tried)

    return finish


def test_one_test_is_tried_again(finish):
    assert finish("test_a.py::test")
    assert finish("test_a.py::test", "test_a.py::test")  # and at its end
    assert finish("a.ipynb::Cell 3", "a.ipynb::Cell 4")


def test_nothing_else_is_tried_again(finish):
    assert not finish("test_a.py::test[1]", "test_a.py::test[2]")
    assert not finish("test_a.py::test", "test_b.py::test")
    assert not finish("a.ipynb::Cell 3", "b.ipynb::Cell 3")
    assert not finish("test_a.py::test", "test_b.py")  # which is not read
    assert not finish("test_a.py::test", maxfail=1)  # others have not run
    assert not finish("test_a.py::test", status=2)  # interrupted
    assert not finish(status=1)


def test_a_run_that_failed_ends_with_its_seed(finish, capsys):
    finish("test_a.py", shuffle="77")
    assert capsys.readouterr().out == (
        "To report this run (its order: SHUFFLE=77): make test-report\n"
    )


def test_there_is_no_run_to_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report_tests, "ROOT", tmp_path)
    assert report_tests.main() == 1
    assert "run: make test" in capsys.readouterr().err
