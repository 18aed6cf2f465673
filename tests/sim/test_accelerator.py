"""Tests of dpkit.accelerator: GPUs are used if torch can, or it is told why.

NVML counts GPUs whose driver torch refuses, and GPUs that it has no kernels
for. A stub in C stands in for NVML and the driver.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from dpkit.accelerator import driver, found, real_devices, why_unusable
from dpkit.accelerator.driver import DriverAnswer, Gpu
from dpkit.accelerator.fits import Build, driver_too_old, no_kernels

BUILD = Build("2.15.0+cu132", "13.2", ("sm_75", "sm_80", "sm_86", "sm_90"))
OLD = "driver 535.104.05 is too old for torch {} (CUDA {} needs driver"


# -- which torch needs what


@pytest.mark.parametrize(
    ("version", "cuda", "fits"),
    [
        ("580.65.06", "13.2", True),
        ("610.1", "13.0", True),
        ("579.99", "13.0", False),
        ("535.104.05", "12.6", True),
        ("524.9", "12.6", False),
        ("450.80.02", "11.8", True),
        ("418.1", "10.2", True),  # older than what the table tells
    ],
)
def test_drivers(version, cuda, fits):
    said = driver_too_old(version, Build("2.15.0", cuda, ()))
    assert (said == "") == fits
    assert fits or f"driver {version} is too old" in said


@pytest.mark.parametrize(
    ("capability", "kernels", "fits"),
    [
        ((7, 0), "sm_75 sm_80", False),  # older
        ((7, 5), "sm_75 sm_80", True),
        ((8, 9), "sm_75 sm_80", True),  # later, of the same generation
        ((9, 0), "sm_75 sm_80", False),  # later, of another
        ((9, 0), "sm_75 compute_80", True),  # made by the driver
        ((7, 5), "compute_80", False),
        ((9, 0), "sm_90a", True),  # for this one alone
        ((12, 1), "sm_120", True),
        ((10, 3), "sm_100a", False),
        ((7, 0), "", True),  # a torch that does not tell
        ((7, 0), "gfx90a", True),
    ],
)
def test_kernels(capability, kernels, fits):
    build = Build("2.15.0", "13.2", tuple(kernels.split()))
    assert (no_kernels("it", capability, build) == "") == fits


def test_the_card_and_what_there_is_are_told():
    said = no_kernels("cuda:0 V100", (7, 0), BUILD)
    assert said.startswith(
        "torch 2.15.0+cu132 has no kernels for cuda:0 V100 (compute "
        "capability: 7.0, it has: 7.5, 8.0, 8.6, 9.0); "
    )


# -- what is made of the driver's answer


@pytest.fixture
def answered(monkeypatch):
    """Let torch count two GPUs, and the driver answer."""

    def answer(**facts):
        told = DriverAnswer(**facts)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.version, "cuda", BUILD.cuda)
        monkeypatch.setattr(found, "_build", lambda: BUILD)
        monkeypatch.setattr(found, "ask_driver", lambda *visible: told)
        return [str(device) for device in real_devices()], why_unusable()

    return answer


def test_all_are_used(answered):
    gpus = [Gpu("T4", (7, 5))] * 2
    assert answered(gpus=gpus, cuda=13000) == (["cuda:0", "cuda:1"], "")


def test_the_driver_counts(answered):
    """It may hide one that NVML shows."""
    assert answered(gpus=[Gpu("T4", (7, 5))]) == (["cuda:0"], "")


def test_an_old_driver(answered):
    gpus = [Gpu("T4", (7, 5))] * 2
    used, why = answered(gpus=gpus, cuda=12020, version="535.104.05")
    assert used == []
    assert why.startswith(OLD.format("2.15.0+cu132", "13.2"))


def test_two_different_cards(answered):
    gpus = [Gpu("V100", (7, 0)), Gpu("A100", (8, 0))]
    used, why = answered(gpus=gpus, cuda=13020)
    assert used == ["cuda:1"]
    assert "no kernels for cuda:0 V100" in why
    assert "A100" not in why


def test_a_driver_that_does_not_start(answered):
    assert answered(error="it does not start") == ([], "it does not start")


def test_a_reason_is_told_once(answered):
    assert answered(error="broken")[1] == "broken"


# -- none is counted


@pytest.fixture
def none_counted(monkeypatch, tmp_path):
    """Let torch count none, where there are signs of a driver."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(found, "FILES_OF_DRIVER", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_neither_a_gpu_nor_a_driver(none_counted, monkeypatch, tmp_path):
    monkeypatch.setattr(found, "FILES_OF_DRIVER", (str(tmp_path / "none"),))
    none = DriverAnswer("its library is missing", is_there=False)
    monkeypatch.setattr(found, "ask_driver", lambda *_: none)
    assert (real_devices(), why_unusable()) == ([], "")


def test_a_driver_without_files_that_does_not_start(
    none_counted, monkeypatch, tmp_path
):
    """Such as that of a container that was started without its GPUs."""
    monkeypatch.setattr(found, "FILES_OF_DRIVER", (str(tmp_path / "none"),))
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(found, "ask_driver", lambda *_: DriverAnswer("why"))
    assert (real_devices(), why_unusable()) == ([], "why")


def test_a_torch_without_cuda(none_counted, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "was built without CUDA" in why_unusable()


def test_a_hidden_gpu(none_counted, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "(CUDA_VISIBLE_DEVICES: '')" in why_unusable()


def test_a_driver_with_no_gpu(none_counted, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    for error in ("broken", ""):
        told = DriverAnswer(error)
        monkeypatch.setattr(found, "ask_driver", lambda *v, a=told: a)
        assert why_unusable() == (error or "the driver has no GPU")


# -- asking the driver


@pytest.fixture
def asked():
    """Ask again, in another process; forget the answer afterwards."""
    driver.ask_driver.cache_clear()
    yield driver.ask_driver
    driver.ask_driver.cache_clear()


def test_no_driver_here(asked, monkeypatch):
    monkeypatch.setattr(driver, "CUDA", "libnone.so")
    found = driver.started()
    assert found["error"].endswith("is missing (libnone.so)")
    assert found["is_there"] is False


def test_a_library_that_cannot_be_loaded(asked, monkeypatch, tmp_path):
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"no library")
    monkeypatch.setattr(driver, "CUDA", str(library))
    found = driver.started()
    assert "the driver's library cannot be loaded" in found["error"]
    assert "is_there" not in found


def test_asking_that_fails(asked, monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import os; os.kill(os.getpid(), 11)")
    monkeypatch.setattr(driver, "__file__", str(broken))
    assert asked(None, None).error.endswith("failed (status: -11)")
    assert asked("0", None).gpus == []


def test_asking_that_does_not_end(asked, monkeypatch, tmp_path):
    endless = tmp_path / "endless.py"
    endless.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(driver, "__file__", str(endless))
    monkeypatch.setattr(driver, "PATIENCE_SECONDS", 0.1)
    assert asked(None, None).error.endswith("did not answer (seconds: 0.1)")


# What dpkit finds, and what is true: what torch can use.
PROGRAM = """
import json, os, torch
from dpkit.accelerator import real_devices, why_unusable
from dpkit.accelerator.kernels import architectures
facts = {
    "counted": torch.cuda.device_count(),
    "found": [str(device) for device in real_devices()],
    "why": why_unusable(),
    "torch": [torch.__version__, torch.version.cuda],
    "kernels": architectures(),
    "process": str(os.getpid()),
}
child = os.fork()
if not child:
    os._exit(torch.cuda._is_in_bad_fork())
facts["bad fork"] = os.waitpid(child, 0)[1]
path = os.environ["STUB_STARTED"]
facts["started"] = open(path).read().split() if os.path.exists(path) else []
facts["is_available"] = torch.cuda.is_available()
facts["kernels by torch"] = torch.cuda.get_arch_list()
print(json.dumps(facts))
"""


@pytest.fixture
def on_a_machine(driver_stub, tmp_path):
    """Return what a process finds on a machine that the settings describe."""
    if not torch.version.cuda:
        pytest.skip("this torch is built without CUDA")

    def run(**settings):
        environment = {
            "LD_LIBRARY_PATH": str(driver_stub),
            "STUB_STARTED": str(tmp_path / "started"),
        } | {f"STUB_{name.upper()}": v for name, v in settings.items()}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            capture_output=True,
            text=True,
            env=os.environ | environment,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.weekly
def test_a_driver_too_old_for_this_torch(on_a_machine):
    """NVML counts the GPUs, and torch cannot use one of them."""
    facts = on_a_machine(
        capabilities="80 80", cuda="10020", driver="535.104.05"
    )
    assert facts["counted"] == 2
    assert facts["is_available"] is False
    assert facts["found"] == []
    assert facts["why"].startswith(OLD.format(*facts["torch"]))


@pytest.mark.slow
def test_gpus_that_fit(on_a_machine):
    """The driver is started once, and in another process."""
    facts = on_a_machine(capabilities="80 10", cuda="99000")
    assert "sm_80" in facts["kernels"]
    assert facts["kernels"] == facts["kernels by torch"]
    assert facts["found"] == ["cuda:0"]
    assert "no kernels for cuda:1 Stub 10" in facts["why"]
    assert facts["bad fork"] == 0
    assert facts["process"] not in facts["started"]
    assert len(facts["started"]) == 1


@pytest.mark.weekly
def test_a_machine_that_is_not_ready(on_a_machine):
    facts = on_a_machine(capabilities="90", cuda="99000", error="802")
    assert facts["found"] == []
    assert "(CUDA_ERROR_SYSTEM_NOT_READY)" in facts["why"]
