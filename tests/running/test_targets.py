"""What the targets of the Makefile start."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.repository import ROOT

# What this run itself was given: make exports it.
GIVEN = (
    *("ENV", "ON", "CPU", "ONLY", "FILES", "SHUFFLE", "AGAIN", "LIMIT"),
    *("CHECK", "SHORT", "VERSIONS"),
)


def dry_run(*words, **environment):
    """Return what make would run."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS")) and name not in GIVEN
    }
    done = subprocess.run(
        [
            "make",
            "-n",
            "--no-print-directory",
            "-C",
            ROOT,
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


@pytest.mark.parametrize("kind", "sim coverage".split())
def test_a_seed_is_given_to_pytest(kind):
    run = dry_run("test", f"ON={kind}", "SHUFFLE=12345")
    assert option("shuffle", run) == "12345"
    assert "--shuffle" not in dry_run("test", f"ON={kind}")


def test_the_report_of_gpus_has_its_own_meaning_of_again():
    assert "--again" not in dry_run("gpu-report")
    assert dry_run("gpu-report", "AGAIN=all").count("--again all") == 1


def test_files_take_the_place_of_all():
    run = dry_run("test", "FILES=tests/test_a.py tests/test_b.py")
    assert run.rstrip().endswith(" tests/test_a.py tests/test_b.py")
    assert dry_run("test", FILES="x") == dry_run("test")


def on_gpus(*words):
    """Return what pytest is given on GPUs: for tests, and for chapters."""
    lines = dry_run("test", "ON=gpu", *words).replace("\\\n", "").splitlines()
    runs = [line.partition("-m pytest ")[2] for line in lines]
    tests = [run for run in runs if run.startswith("-m cuda")]
    return tests, [run for run in runs if "--nbval-lax" in run]


def test_on_gpus_are_run_all_chapters_and_what_needs_cuda():
    (tests,), (chapters,) = on_gpus()
    assert tests.split() == ["-m", "cuda", "tests"]
    assert chapters.count(".ipynb") == len([*ROOT.glob("book/*.ipynb")])
    assert "-p tests.running.gpus_used" in chapters
    assert int(chapters.split()[1]) in range(1, 5)  # after -n


def test_on_gpus_one_chapter_or_some_files_are_run():
    tests, (chapter,) = on_gpus("ONLY=memory")
    assert tests == []
    assert chapter.endswith(" book/memory.ipynb")
    assert chapter.count(".ipynb") == 1
    (tests,), (chapter,) = on_gpus("FILES=tests/a.py book/b.ipynb")
    assert tests.startswith("-m cuda tests/a.py")
    assert chapter.endswith(" book/b.ipynb")
    (tests,), chapters = on_gpus("FILES=tests/a.py")
    assert chapters == []


def test_continuous_integration_shuffles():
    workflow = ROOT / ".github" / "workflows" / "cpu.yml"
    for file in (ROOT / ".ci" / "run", workflow):
        assert 'make test SHUFFLE="$' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        ("avx2", "ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2"),
        ("compat", "ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE"),
    ],
)
def test_another_cpu_runs_chapters_and_what_speaks_of_torch(cpu, words):
    run = dry_run("test", "ON=other-cpu", f"CPU={cpu}")
    run = run.replace("\\\n", "")
    (line,) = [line for line in run.splitlines() if "pytest" in line]
    assert line.startswith(f"{words} ")
    given = line.split()
    chapters = {
        f"book/{path.name}" for path in (ROOT / "book").glob("*.ipynb")
    }
    assert chapters <= set(given)
    assert "--nbval" in given
    for name in ("runs/test_ranks", "book/test_sharding_runs"):
        assert f"tests/{name}.py" in given
    for name in ("sim/test_clock", "site/tools/test_words"):
        assert f"tests/{name}.py" not in given
    assert "tests/cuda_double" not in run


def test_the_first_cpu_is_the_one_that_differs_most():
    run = dry_run("test", "ON=other-cpu", CPU="avx2")
    assert "MKL_CBWR=COMPATIBLE" in run


def test_an_unknown_cpu_is_refused():
    with pytest.raises(AssertionError, match=r"unknown CPU \(CPU: arm, "):
        dry_run("test", "ON=other-cpu", "CPU=arm")


def test_an_unknown_kind_of_test_is_refused():
    with pytest.raises(AssertionError, match=r"test \(ON: tpu, known: .*sim"):
        dry_run("test", "ON=tpu")
    assert dry_run("test", ON="tpu") == dry_run("test")  # of some shell


def test_outputs_are_stored_only_where_it_was_asked():
    """A mistyped place would store the outputs of simulated devices."""
    with pytest.raises(AssertionError, match=r"there \(ON: cpu, known: gpu"):
        dry_run("execute", "ON=cpu")
    assert "--check" in dry_run("execute", "CHECK=yes")
    assert "--check" not in dry_run("execute", CHECK="yes")  # of some shell


def test_each_kind_of_test_that_is_listed_runs_something():
    kinds = dry_run("help").partition("ON=one of: ")[2].strip('"\n').split()
    assert {"sim", "gpu", "cpu", "other-cpu", "double"} <= {*kinds}
    for kind in kinds:
        assert f"{sys.prefix}/bin/" in dry_run("test", f"ON={kind}"), kind
