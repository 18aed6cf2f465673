"""The environment of the tests: one that is there, a torch that is there.

And what is said where a torch, or a GPU, does not fit.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from environment import fit_for_tests, gpu_fits, torch_there

import dpkit.accelerator
from tests.repository import ROOT

PINS = (ROOT / "requirements.txt").read_text("utf-8")


def test_dpkit_alone_asks_for_nothing_that_may_replace_torch():
    """To find a torchvision that fits, pip may change the torch."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = [re.split("[>=<]", d)[0] for d in facts["project"]["dependencies"]]
    assert asked == ["torch", "tqdm", "cloudpickle"]


def make(*words, **environment):
    """Return the exit status of make, and what it prints."""
    if not shutil.which("make"):
        pytest.skip("no make here")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "CI", "DPKIT"))
    }
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", ROOT, *words],
        capture_output=True,
        text=True,
        env=kept | environment,
    )
    return done.returncode, done.stdout + done.stderr


# ------------------------------------------------- make … ENV=, TORCH=there


@pytest.fixture
def environment(tmp_path):
    """A folder with bin/python3, as of a virtual environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    return tmp_path


@pytest.mark.parametrize(
    "target",
    "book check notebooks edit execute test notebooks-branch gpu-report bench "
    "reproduce".split()
    + ["execute CHECK=yes", "execute ON=gpu"]
    + [f"test ON={kind}" for kind in "sim cpu gpu plain coverage".split()],
)
def test_a_target_uses_an_environment_and_installs_nothing(
    environment, target
):
    status, said = make("-n", *target.split(), f"ENV={environment}")
    assert status == 0, said
    assert f"{environment}/bin/python3" in said
    assert ".venv" not in said
    assert "pip" not in said


def test_without_dpkit_it_is_imported_from_here(environment):
    printed = "--eval=path: ; @echo $$PYTHONPATH"
    status, said = make(printed, "path", f"ENV={environment}", PYTHONPATH="/x")
    assert (status, said) == (0, f"{ROOT}:{ROOT}/book:/x\n")


def test_what_make_cannot_use_is_named(tmp_path):
    for words, fault in (
        (["test", f"ENV={tmp_path}"], f"environment (ENV: {tmp_path})"),
        (["setup", "TORCH=cpu"], "unknown torch (TORCH: cpu, known: there)"),
    ):
        status, said = make("-n", *words)
        assert status != 0
        assert fault in said
    # Some shells have a variable ENV, which says something else.
    assert make("-n", "help", ENV="/nowhere", TORCH="no")[0] == 0


def test_a_torch_that_is_there_is_not_installed(tmp_path):
    """Nor is it when the environment is brought up to date."""
    new = f"VENV={tmp_path}"
    asked, got, told = "gpu_fits.py", "-r requirements.txt", "fit_for_tests.py"
    said = make("-n", "setup", new)[1]
    assert 0 < said.index(asked) < said.index(got) < said.index(told)
    said = [make("-n", "setup", "TORCH=there", new)[1]]
    (tmp_path / "without-torch.txt").touch()
    said.append(make("-n", "setup", new)[1])
    for text in said:
        assert f"torch_there.py {tmp_path}\n" in text
        assert f"-r {tmp_path}/without-torch.txt" in text
        assert got not in text


def test_a_port_is_tried_before_the_pages_are_built(environment):
    _, said = make("-n", "serve", "PORT=8123", f"ENV={environment}")
    assert 0 < said.index('--try "8123"') < said.index("build_site.py")
    assert said.index("build_site.py") < said.index('_build/html "8123"')


def test_what_comes_with_torch_is_left_out():
    kept = torch_there.without_torch(PINS).splitlines()
    left_out = {*PINS.splitlines()} - {*kept}
    with_torch = ("torch", "triton", "nvidia", "cuda")
    assert not [line for line in kept if line.startswith(with_torch)]
    assert len(left_out) > 3
    for name in ("pytest==", "matplotlib==", "nbval=="):
        assert any(line.startswith(name) for line in kept)


@pytest.mark.slow
def test_a_torch_of_an_environment_is_seen(tmp_path):
    """Of one that is itself virtual, of which venv sees nothing."""
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    words = [sys.executable, "-m", "venv", "--without-pip", outer]
    subprocess.run(words, check=True)
    (site,) = outer.glob("lib/python*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("__version__ = 'mine'")
    # As on Colab: to unpack pip takes seconds.
    no_pip = "import sys; sys.modules['ensurepip'] = None"
    (site / "sitecustomize.py").write_text(no_pip)
    words = [outer / "bin" / "python", "-P", torch_there.__file__, inner]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{inner} sees {site / 'torch'}" in done.stdout
    assert done.stderr.startswith("without torchvision")
    program = "import torch; print(torch.__version__)"
    words = [inner / "bin" / "python", "-c", program]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.stdout == "mine\n", found.stderr


def test_no_torch_or_another_environment(tmp_path, monkeypatch, capsys):
    assert torch_there.main(tmp_path) == 1
    assert f"first: rm -r {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(torch_there, "find_spec", lambda name: None)
    assert torch_there.main(tmp_path / "new") == 1
    assert "there is no torch (Python: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_was_interrupted_is_not_taken_for_a_whole_one(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "new"

    def interrupted(folder):
        folder.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_there, "make", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch_there.main(folder)
    assert torch_there.main(folder) == 1
    said = capsys.readouterr().err
    assert f"a part of one; first: rm -r {folder}" in said


# --------------------------------------------- before the tests are run


def plant_old_python(patch):
    patch.setattr(sys, "version_info", (3, 10, 2))
    return "Python 3.11 or newer is needed"


def plant_no_torch(patch):
    patch.setitem(sys.modules, "torch", None)
    return r"torch cannot be imported \(ModuleNotFoundError: .*\); install"


def plant_another_torchvision(patch):
    def fail(name):
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")

    patch.setattr(fit_for_tests.importlib, "import_module", fail)
    return r"torchvision cannot be imported \(RuntimeError: operator"


@pytest.mark.parametrize(
    "plant", [plant_old_python, plant_no_torch, plant_another_torchvision]
)
def test_a_fault_is_one_sentence(plant, monkeypatch, capsys):
    expected = plant(monkeypatch)
    assert fit_for_tests.main() == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"The tests cannot run here: {expected}.*\.\n", said)
    source = Path(fit_for_tests.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))  # an older Python can read it


@pytest.mark.parametrize(
    ("reason", "gpus", "ci", "status", "ends"),
    [
        ("", [], "true", 0, ""),
        ("driver 430.1 is too old", [], "", 0, "there is a driver.\n"),
        ("driver 430.1 is too old", [], "true", 1, "there is a driver.\n"),
        ("no kernels for GPU 1", [0], "true", 0, "kernels for GPU 1\n"),
    ],
)  # fmt: skip
def test_a_gpu_that_torch_cannot_use_is_told_and_fails_in_ci(
    monkeypatch, capsys, reason, gpus, ci, status, ends
):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(dpkit.accelerator, "why_unusable", lambda: reason)
    monkeypatch.setattr(dpkit.accelerator, "real_devices", lambda: gpus)
    assert fit_for_tests.main() == status
    said = capsys.readouterr().err
    assert said.endswith(ends)
    assert reason in said
    assert bool(said) == bool(reason)


# --------------------------------------------- GPUs, before the download


T4 = "Tesla T4, 7.5, 580.65.06"
V100 = "Tesla V100-SXM2-16GB, 7.0, 535.104.05"  # no newer driver would help
H100 = "NVIDIA H100 80GB HBM3, 9.0, 580.65.06"
OLD = "Tesla T4, 7.5, 535.104.05"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([T4, H100], []),
        ([H100, V100], [
            "torch 2.15.0 has no kernels for GPU 1, Tesla V100-SXM2-16GB "
            "(compute capability: 7.0, it has: 7.5, 8.0, 8.6, 9.0, 10.0, 12.0)"
        ]),
        ([OLD, OLD], [
            "driver 535.104.05 is too old for torch 2.15.0 (CUDA 13.2 needs "
            "driver 580 or newer)"
        ]),
        (["A, 7.5, old"],
         ["nvidia-smi says what cannot be read ('A, 7.5, old')"]),
    ],
)  # fmt: skip
def test_cards_and_drivers(rows, said):
    found = gpu_fits.faults("\n".join(rows))
    assert [line.partition(";")[0] for line in found] == said


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, ""),
        (f"echo {T4}", ""),
        (f"echo {OLD}", "gpu: driver 535.104.05 is too old for torch 2.15.0"),
        ("echo no driver; exit 9", "gpu: nvidia-smi fails (status: 9, 'no "),
    ],
)
def test_what_nvidia_smi_says(script, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin" if script else "")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)
    gpu_fits.main()
    found = capsys.readouterr().err
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert not said or found.endswith(f"{gpu_fits.ADVICE}\n")


def test_the_section_that_the_advice_names_is_there():
    (name,) = re.findall(r'"(.*?)"', gpu_fits.ADVICE)
    assert f"\n# {name}\n" in (ROOT / "book/gpus.md").read_text("utf-8")


def test_what_the_pinned_torch_was_built_for():
    pinned = gpu_fits.PINNED
    assert f"\ntorch=={pinned.torch}\n" in PINS
    assert re.search(rf"^cuda-toolkit=={pinned.cuda}\.", PINS, re.MULTILINE)
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


# ------------------------------------------------- GPUs, by the Makefile


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "cuda", "status", "says"),
    [
        ("test", "99000", 0, "Chapters on 2 GPU(s)"),
        ("test", "10020", 0, '-m "not cuda and not weekly"'),
        ("test ON=gpu", "10020", 2, "driver 430.1 is too old"),
    ],
)
def test_gpus_are_tested_if_torch_can_use_them(
    driver_stub, target, cuda, status, says
):
    """Each run of pytest is `true` here."""
    if not torch.version.cuda:
        pytest.skip("this torch is built without CUDA")
    found = make(
        *(*target.split(), "PYTEST=true", "FIT=true", "HAS_DRIVER=true"),
        f"ENV={sys.prefix}",
        LD_LIBRARY_PATH=str(driver_stub),
        STUB_CAPABILITIES="80 80",
        STUB_CUDA=cuda,
        STUB_DRIVER="430.1",
    )
    assert found[0] == status
    assert says in found[1]
    assert ("-m cuda tests" in found[1]) == (cuda == "99000")
