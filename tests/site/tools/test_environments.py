"""The Makefile takes an environment that is there, or only its torch."""

import os
import shutil
import subprocess
import sys

import pytest
import torch_there
from lacking import required

from tests.repository import ROOT


def make(*words, **environment):
    """Return the exit status of make, and what it prints."""
    if not shutil.which("make"):
        pytest.skip("no make here")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", ROOT, *words],
        capture_output=True,
        text=True,
        env=kept | environment,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def environment(tmp_path):
    """A folder with bin/python3, as of a virtual environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    return tmp_path


@pytest.mark.parametrize(
    "target",
    "book check notebooks execute reproducible test test-sim test-cpu "
    "test-gpu test-plain notebooks-branch gpu-report gpu-outputs bench "
    "reproduce coverage".split(),
)
def test_a_target_uses_an_environment_and_installs_nothing(
    environment, target
):
    status, said = make("-n", target, f"ENV={environment}")
    assert status == 0, said
    assert f"{environment}/bin/python3" in said
    assert ".venv" not in said
    assert "pip" not in said


def test_without_dpkit_it_is_imported_from_here(environment):
    printed = "--eval=path: ; @echo $$PYTHONPATH"
    status, said = make(printed, "path", f"ENV={environment}", PYTHONPATH="/x")
    assert (status, said) == (0, f"{ROOT}:{ROOT}/book:/x\n")


def test_an_environment_without_a_python(tmp_path):
    status, said = make("-n", "test", f"ENV={tmp_path}")
    assert status != 0
    assert f"no Python in the environment (ENV: {tmp_path})" in said


def test_a_variable_of_the_shell_is_none():
    """Some shells have a variable ENV, which says something else."""
    assert make("-n", "help", ENV="/nowhere", TORCH="no")[0] == 0


def test_an_unknown_torch():
    status, said = make("-n", "setup", "TORCH=cpu")
    assert status != 0
    assert "unknown torch (TORCH: cpu, known: there)" in said


def test_a_torch_that_is_there_is_not_installed(tmp_path):
    """Nor is it when the environment is brought up to date."""
    new = f"VENV={tmp_path}"
    assert "-r requirements.txt" in make("-n", "setup", new)[1]
    said = [make("-n", "setup", "TORCH=there", new)[1]]
    (tmp_path / "without-torch.txt").touch()
    said.append(make("-n", "setup", new)[1])
    for text in said:
        assert f"-r {tmp_path}/without-torch.txt" in text
        assert "-r requirements.txt" not in text


def test_a_port_is_tried_before_the_pages_are_built(environment):
    _, said = make("-n", "serve", "PORT=8123", f"ENV={environment}")
    assert 0 < said.index('--try "8123"') < said.index("build_site.py")
    assert said.index("build_site.py") < said.index('_build/html "8123"')


def test_what_comes_with_torch_is_left_out():
    pinned = (ROOT / "requirements.txt").read_text("utf-8")
    kept = torch_there.without_torch(pinned).splitlines()
    left_out = set(pinned.splitlines()) - set(kept)
    for line in kept:
        assert not line.startswith(("torch", "triton", "nvidia", "cuda"))
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
    script = ROOT / "scripts" / "torch_there.py"
    words = [outer / "bin" / "python", "-P", script, inner]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{inner} sees {site / 'torch'}" in done.stdout
    assert done.stderr.startswith("without torchvision")
    program = "import torch; print(torch.__version__)"
    words = [inner / "bin" / "python", "-c", program]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.stdout == "mine\n", found.stderr


def test_there_is_no_torch(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch_there, "find_spec", lambda name: None)
    assert torch_there.main(tmp_path / "new") == 1
    assert "there is no torch (Python: " in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_environment_with_a_torch_of_its_own_is_kept(tmp_path, capsys):
    assert torch_there.main(tmp_path) == 1
    assert f"first: rm -r {tmp_path}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_was_interrupted_is_made_again(
    tmp_path, monkeypatch
):
    def interrupted(self, context):
        raise KeyboardInterrupt

    folder, builder = tmp_path / "new", torch_there.venv.EnvBuilder
    monkeypatch.setattr(builder, "setup_python", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch_there.main(folder)
    assert (folder / "pyvenv.cfg").exists()
    monkeypatch.undo()
    made = []
    monkeypatch.setattr(torch_there, "make", made.append)
    for _ in range(2):
        assert torch_there.main(folder) == 0
    assert made == [folder]  # and not once more when it is whole


def test_what_an_environment_lacks_is_named(tmp_path):
    assert {"torch", "nbval", "jupyter_client"} <= set(required())
    assert not {"dpkit", "dpkit[lab]"} & set(required())
    script = ROOT / "scripts" / "lacking.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", script], capture_output=True, text=True
    )
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "has no torch, torchvision, tqdm" in line
