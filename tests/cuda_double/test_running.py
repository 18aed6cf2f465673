"""What `run` promises: the environment, its errors, its reports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RACE = """\
import torch
def race():
    side = torch.cuda.Stream()
    x = torch.ones(10, device="cuda")
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.synchronize()
"""


def test_devices_that_are_visible(run: Any) -> None:
    program = (
        "import torch; x = torch.ones(2, device='cuda');"
        "p = torch.cuda.get_device_properties(0);"
        "print(torch.cuda.device_count(), p.pci_bus_id, x.sum().item())"
    )
    ended = run(4, "-c", program, CUDA_VISIBLE_DEVICES="2")
    assert ended.stdout == "1 3 2.0\n"


def test_no_device_visible(run: Any) -> None:
    program = "import torch; print(torch.cuda.is_available())"
    ended = run(4, "-c", program, CUDA_VISIBLE_DEVICES="")
    assert ended.stdout == "False\n"


def test_name_capability_and_memory(run: Any) -> None:
    program = (
        "import torch; p = torch.cuda.get_device_properties(0);"
        "print(p.name, p.major, p.minor, p.total_memory)"
    )
    ended = run(
        1,
        "-c",
        program,
        CUDA_DOUBLE_NAME="Tesla T4",
        CUDA_DOUBLE_CAPABILITY="7.5",
        CUDA_DOUBLE_BYTES="1000000",
    )
    assert ended.stdout == "Tesla T4 7 5 1000000\n"


def test_the_driver_is_there_without_torch(run: Any) -> None:
    program = (
        "import ctypes; cuda = ctypes.CDLL('libcuda.so.1');"
        "n = ctypes.c_int(); error = cuda.cuInit(0);"
        "cuda.cuDeviceGetCount(ctypes.byref(n)); print(error, n.value)"
    )
    assert run(3, "-c", program).stdout == "0 3\n"
    hidden = run(3, "-c", program, CUDA_VISIBLE_DEVICES="")
    assert hidden.stdout == "100 0\n"


def test_the_simulation_is_not_asked_for(run: Any) -> None:
    program = "import os; print(os.environ.get('DPKIT_DEVICES'))"
    assert run(1, "-c", program, DPKIT_DEVICES="sim").stdout == "None\n"


def test_a_child_believes_too(run: Any) -> None:
    child = "import torch; print(torch.cuda.device_count())"
    program = (
        "import subprocess, sys;"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    assert run(3, "-c", program).stdout == "3\n"


def test_to_ask_for_torch_is_not_to_import_it(run: Any) -> None:
    program = (
        "from importlib.util import find_spec; assert find_spec('torch');"
        "import torch; print(torch.cuda.device_count())"
    )
    assert run(2, "-c", program).stdout == "2\n"


def test_what_is_found_is_logged(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = run(1, "-c", f"{RACE}race()", CUDA_DOUBLE_LOG=str(log))
    (line,) = log.read_text().splitlines()
    assert line.startswith("CUDA_DOUBLE race: read by mul on cuda:0 stream")
    assert line in ended.stderr


def test_a_test_with_a_race_fails(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "test_race.py"
    file.write_text(
        f"{RACE}def test_wrong(): race()\ndef test_right(): pass\n"
    )
    ended = run(1, "-m", "pytest", "-q", "-p", "no:cacheprovider", file)
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "the double of CUDA has found" in ended.stdout
    assert "test_race.py:6" in ended.stdout


def test_a_compiler_that_is_not_there(tmp_path: Path) -> None:
    copied = tmp_path / "tests" / "cuda_double"
    shutil.copytree(HERE, copied)
    ended = subprocess.run(
        [copied / "run", "1", "true"],
        capture_output=True,
        text=True,
        env=os.environ | {"CXX": "no-such-compiler", "PYTHON": sys.executable},
    )
    assert ended.returncode == 3
    (line,) = ended.stderr.splitlines()
    assert line == "the double of CUDA cannot be built: no g++ on the PATH"
