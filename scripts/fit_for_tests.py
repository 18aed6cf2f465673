"""Print in one sentence why the tests cannot run on this machine.

Usage: python scripts/fit_for_tests.py

`make test` begins with it. A machine that lacks something fails hundreds of
tests otherwise, in words that do not say why. It takes a few seconds, most of
them to import torch. Nothing is printed where all is well.
"""

from __future__ import annotations  # a Python that is too old reads this

import errno
import importlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "pyproject.toml"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

FREE_GIGABYTES = 2  # the site, built a few times, and what tests write
RANKS_SECONDS = 120
# Two ranks find each other as gloo does it, and add 1 and 1.
RANK = """
import sys, torch, torch.distributed as dist
rank, port = sys.argv[1:]
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2
)
x = torch.ones(1)
dist.all_reduce(x)
dist.destroy_process_group()
sys.exit(x.item() != 2)
"""


def old_python() -> str | None:
    """Look at the version of this Python."""
    if tuple(sys.version_info) >= (3, 11):
        return None
    version = sys.version.split()[0]
    return (
        f"Python 3.11 or newer is needed ({sys.executable}: {version}); name "
        "one with: make setup PYTHON=python3.11"
    )


def least_version(name: str) -> tuple[int, int]:
    """Return the oldest version of a package that pyproject.toml allows."""
    import tomllib

    text = PROJECT.read_text(encoding="utf-8")
    lines = "\n".join(tomllib.loads(text)["project"]["dependencies"])
    found = re.search(rf"^{name}>=(\d+)\.(\d+)", lines, re.MULTILINE)
    assert found, name
    return int(found[1]), int(found[2])


def old_package(name: str) -> str | None:
    """Import a package that the tests compute with; look at its version."""
    try:
        version: str = importlib.import_module(name).__version__
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        return (
            f"{name} cannot be imported ({type(error).__name__}: {said}); "
            "install torch and torchvision together, from one index"
        )
    least = least_version(name)
    if tuple(map(int, version.split(".")[:2])) < least:
        oldest = ".".join(map(str, least))
        return f"{name} is too old (here: {version}, needed: {oldest})"
    return None


def too_little_memory() -> str | None:
    """Ask for the memory of one worker."""
    from tests.running.workers import BYTES_A_WORKER, available_memory

    available = available_memory()
    if available >= BYTES_A_WORKER:
        return None
    return (
        f"a worker needs {BYTES_A_WORKER / 1e9} GB of memory (available: "
        f"{available / 1e9:.1f} GB); close other programs"
    )


def too_little_disk() -> str | None:
    """Ask for room where the tests write."""
    for folder in (tempfile.gettempdir(), str(ROOT)):
        free = shutil.disk_usage(folder).free
        if free < FREE_GIGABYTES * 1e9:
            return (
                f"the tests need {FREE_GIGABYTES} GB of disk (in {folder} "
                f"are free: {free / 1e9:.1f} GB); delete something"
            )
    return None


def no_place_to_write() -> str | None:
    """Write a file where the tests write."""
    try:
        for folder in (tempfile.gettempdir(), ROOT):
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"x")
    except OSError as error:
        return (
            f"no file can be written ({error}); give the folder to this user, "
            "or name another one for temporary files in TMPDIR"
        )
    return None


def no_loopback() -> str | None:
    """Send a byte to this process itself."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), 5) as sender:
                sender.send(b"x")
    except OSError as error:
        return (
            f"no port of the loopback can be used (127.0.0.1: {error}); "
            "processes of one machine meet there, so allow it"
        )
    return None


def unknown_name() -> str | None:
    """Look up this machine by its name, as gloo and torchrun do."""
    name = socket.gethostname()
    try:
        for *_, address in socket.getaddrinfo(name, None, socket.AF_INET):
            with socket.socket() as local:
                local.bind((address[0], 0))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            error = OSError(f"{address[0]} is another machine")
        return (
            f"this machine does not know its own name ({name}: {error}); "
            f"add a line to /etc/hosts: 127.0.0.1 {name}"
        )
    return None


def no_processes() -> str | None:
    """Start a process."""
    try:
        subprocess.run([sys.executable, "-c", ""], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return (
            f"no process can be started ({error}); the tests start a few "
            "hundred, so raise the limit (ulimit -u)"
        )
    return None


def no_ranks() -> str | None:
    """Start two processes that add a number by gloo."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(port)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=RANKS_SECONDS)[1] for rank in ranks]
    except subprocess.TimeoutExpired:
        said = [f"nothing in {RANKS_SECONDS} s"]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if all(rank.returncode == 0 for rank in ranks):
        return None
    last = max(said, key=len).strip().rpartition("\n")[2]
    return (
        f"two processes do not meet by gloo ({last}); name the network "
        "interface of the loopback in GLOO_SOCKET_IFNAME"
    )


# What is asked first has to hold for those that follow.
CHECKS: tuple[Callable[[], str | None], ...] = (
    old_python,
    no_place_to_write,
    too_little_disk,
    too_little_memory,
    no_loopback,
    unknown_name,
    no_processes,
    lambda: old_package("torch"),
    lambda: old_package("torchvision"),
    no_ranks,
)


def main() -> int:
    """Print the first thing that is not as the tests need it."""
    for check in CHECKS:
        fault = check()
        if fault:
            print(f"The tests cannot run here: {fault}.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
