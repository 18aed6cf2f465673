"""What will not work on a GPU is said by `make setup` and by `make test`."""

import os
import re
import shutil
import subprocess
import sys

import gpu_fits
import pytest
import torch

from tests.repository import ROOT

PINS = (ROOT / "requirements.txt").read_text("utf-8")
T4 = "Tesla T4, 7.5, 580.65.06"
V100 = "Tesla V100-SXM2-16GB, 7.0, 580.65.06"
H100 = "NVIDIA H100 80GB HBM3, 9.0, 580.65.06"
OLD = "Tesla T4, 7.5, 535.104.05"


@pytest.fixture
def setup(tmp_path):
    """Return what is said where nvidia-smi does what a script says."""

    def run(script, *words):
        smi = tmp_path / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\n{script}\n")
        smi.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-P", gpu_fits.__file__, *words],
            capture_output=True,
            text=True,
            env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert (done.returncode, done.stdout) == (0, "")
        return done.stderr.splitlines()

    return run


def prints(*rows):
    """Return a script that prints rows, if asked for what is read."""
    asked = " ".join(gpu_fits.QUERY[1:])
    text = "\n".join(rows)
    return f'[ "$*" = "{asked}" ] && cat <<END\n{text}\nEND'


def test_a_card_that_fits(setup):
    assert setup(prints(T4)) == []
    assert setup(prints(*[H100] * 8)) == []


def test_an_old_card(setup):
    said, advice = setup(prints(V100))
    assert said.startswith(
        "gpu: torch 2.15.0 has no kernels for GPU 0, Tesla V100-SXM2-16GB "
        "(compute capability: 7.0, it has: 7.5, 8.0, 8.6, 9.0, 10.0, 12.0); "
    )
    assert "five minutes" in advice


def test_an_old_driver_is_told_once(setup):
    said, _ = setup(prints(OLD, OLD))
    assert said.startswith(
        "gpu: driver 535.104.05 is too old for torch 2.15.0 (CUDA 13.2 needs "
        "driver 580 or newer); "
    )


def test_two_different_cards(setup):
    said, _ = setup(prints(H100, V100))
    assert "no kernels for GPU 1, Tesla V100" in said


def test_it_fails(setup):
    said, _ = setup("echo 'cannot talk to the driver'; exit 9")
    assert said == (
        "gpu: nvidia-smi fails (status: 9, 'cannot talk to the driver')"
    )


@pytest.mark.parametrize(
    "row", ["no devices were found", "Tesla T4, [N/A], 580.1", "A, 7.5, old"]
)
def test_a_line_that_cannot_be_read(setup, row):
    said = setup(prints(V100, row))[1]
    assert said == f"gpu: nvidia-smi says what cannot be read ({row!r})"


def test_no_nvidia_smi(monkeypatch, capsys):
    monkeypatch.setattr(gpu_fits.shutil, "which", lambda name: None)
    monkeypatch.setattr(gpu_fits, "ask", lambda: 1 / 0)
    gpu_fits.main(there=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_the_torch_that_is_there(setup):
    if torch.version.cuda is None:
        assert "without CUDA" in setup(prints(T4), "--there")[0]
    else:
        said = setup(prints("old, 1.0, 999"), "--there")[0]
        assert f"torch {torch.__version__} has no kernels" in said


def test_the_pinned_torch_is_the_one_that_is_installed():
    pinned = gpu_fits.PINNED
    assert f"\ntorch=={pinned.torch}\n" in PINS
    assert re.search(rf"^cuda-toolkit=={pinned.cuda}\.", PINS, re.MULTILINE)


def test_what_the_pinned_torch_was_built_for():
    pinned = gpu_fits.PINNED
    if torch.__version__.partition("+")[0] != pinned.torch:
        pytest.skip(f"this is torch {torch.__version__}")
    if torch.version.cuda is None:
        pytest.skip("this torch is built without CUDA")
    # Not asked here: after the question this process could not fork.
    program = (
        "import torch; print(torch.version.cuda, *torch.cuda.get_arch_list())"
    )
    words = [sys.executable, "-c", program]
    out = subprocess.run(words, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [pinned.cuda, *pinned.architectures]


# -- the Makefile


@pytest.fixture
def make():
    """Return a function that runs make; each target's tests are `true`."""
    if not shutil.which("make"):
        pytest.skip("no make here")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "CI", "DPKIT"))
    }

    def run(target, driver, **environment):
        done = subprocess.run(
            ["make", "--no-print-directory", "-C", ROOT, target, "PYTEST=true",
             "FIT=true", f"HAS_DRIVER={driver}", f"ENV={sys.prefix}"],
            capture_output=True,
            text=True,
            env=kept | environment,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def old_driver(driver_stub):
    """Return the environment of a machine with a driver that is too old."""
    if not torch.version.cuda:
        pytest.skip("this torch is built without CUDA")
    return {
        "LD_LIBRARY_PATH": str(driver_stub),
        "STUB_CAPABILITIES": "80 80",
        "STUB_CUDA": "10020",
        "STUB_DRIVER": "430.1",
    }


def test_no_driver_no_word(make):
    assert make("test", "false", CI="true")[::2] == (0, "")


@pytest.mark.slow
def test_a_driver_that_torch_refuses_is_told(make, old_driver):
    status, out, said = make("test", "true", **old_driver)
    assert status == 0
    assert "NO TEST RUNS ON A GPU: driver 430.1 is too old" in said
    assert "-m not cuda" in out.replace('"', "")  # the others run


@pytest.mark.slow
def test_a_driver_that_torch_refuses_is_a_failure_in_ci(make, old_driver):
    status, out, said = make("test", "true", CI="true", **old_driver)
    assert status != 0
    assert "a runner with a driver fails without its GPUs" in said
    assert "not cuda" not in out


@pytest.mark.slow
def test_gpus_that_fit_are_tested(make, old_driver):
    status, out, said = make(
        "test", "true", CI="true", **old_driver | {"STUB_CUDA": "99000"}
    )
    assert (status, said) == (0, "")
    assert "-m cuda tests" in out
    assert "Chapters on 2 GPU(s)" in out


@pytest.mark.slow
def test_gpu_tests_alone_say_why_there_are_none(make, old_driver):
    status, _, said = make("test-gpu", "true", **old_driver)
    assert status != 0
    assert "torch can use no GPU here" in said
    assert "driver 430.1 is" in said


def test_setup_says_it_before_the_download_and_at_the_end(tmp_path):
    words = ["make", "-n", "-C", ROOT, "setup", f"VENV={tmp_path}"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    out = subprocess.run(
        words, capture_output=True, text=True, env=kept
    ).stdout
    first, last = (m.start() for m in re.finditer(r"gpu_fits\.py", out))
    assert first < out.index("-r requirements.txt") < last
    assert "gpu_fits.py --there" in out[last - 5 : last + 30]


def test_a_newer_driver_is_not_advised_for_a_card_without_kernels():
    row = "Tesla V100-SXM2-16GB, 7.0, 535.104.05"
    (fault,) = gpu_fits.faults(row, gpu_fits.PINNED)
    assert "no kernels" in fault
    assert "driver" not in fault
