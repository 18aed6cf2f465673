"""Fixtures that all tests share."""

import atexit
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.repository import ROOT

# Imported where it is used: the process that only gives out the work would
# import torch before it starts the others.
if TYPE_CHECKING:
    import torch

GetDevices = Callable[[int], list["torch.device"]]
NeedGpus = Callable[[int], None]
PretendGpus = Callable[[int], None]


# How long an example takes depends on what else the machine does.
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")

# A shell gives what it starts in the background no interrupt; tests send some.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let later collections of garbage pass over what imports have made.

    It has to be there again when Python takes itself down, but not before
    that: pytest collects ten times as it ends.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.fixture(autouse=True)
def idle_devices() -> None:
    """Begin on idle devices: workers take tests in any order.

    What a test has launched, and never waited for, still holds its streams
    and links. It would show in the first timeline of the next test, which may
    get the same stream: a device has 32, and then begins again.
    """
    sim = getattr(sys.modules.get("torch"), "sim", None)
    for index in range(sim.device_count() if sim else 0):
        sim.synchronize(index)


@pytest.fixture(autouse=True)
def same_digits_on_gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let convolutions on GPUs compute in float32, and twice the same.

    By default they round what they read to TF32, and may add in another order
    each time. Chapters and graders have to bear that; tests compare digits.
    """
    if request.node.get_closest_marker("cuda") is None:
        yield
        return
    cudnn = import_module("torch").backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    yield
    cudnn.allow_tf32, cudnn.deterministic = before


@pytest.fixture(scope="session")
def environments() -> Callable[[int], list[dict[str, str]]]:
    """Give what torchrun tells the ranks of a job, to each its own."""

    def give(world_size: int) -> list[dict[str, str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return [
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }
            for rank in range(world_size)
        ]

    return give


@pytest.fixture
def run_new() -> Callable[[str], str]:
    """Run a program in a new Python, without DPKIT_DEVICES; return its words.

    A forked one could not use a GPU.
    """

    def run(program: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={k: v for k, v in os.environ.items() if k != "DPKIT_DEVICES"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    return run


@pytest.fixture
def run_ranks(
    forking: Any, environments: Callable[[int], list[dict[str, str]]]
) -> Callable[..., str]:
    """Run a module in ranks, as torchrun does; return what rank 0 prints.

    They are forked where that can be, so that none has to import torch. That
    torchrun itself starts a program is for the chapters to show.
    """

    def run(world_size: int, module: str, *arguments: object) -> str:
        program = f"from {module} import main; main()"
        words = [sys.executable, "-c", program, *map(str, arguments)]
        ranks = [
            forking.Popen(
                words,
                env=os.environ | environment,
                stdout=forking.PIPE,
                text=True,
                start_new_session=True,
            )
            for environment in environments(world_size)
        ]
        try:
            told = [rank.communicate()[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()  # nothing, where it has ended
        assert [rank.returncode for rank in ranks] == [0] * world_size, told
        return str(told[0])

    return run


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """Tell whether a process is there, and not ended and yet unburied."""

    def tell(pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    return tell


@pytest.fixture
def wait_until_ended(
    is_running: Callable[[int], bool],
) -> Callable[[Iterable[int]], None]:
    """Wait until processes have ended, which they must do."""

    def wait(pids: Iterable[int]) -> None:
        pids, deadline = list(pids), time.monotonic() + 1200
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_running, pids))

    return wait


@pytest.fixture
def outcomes(
    ranks: list[dict[str, Any]], request: pytest.FixtureRequest
) -> list[Any]:
    """What each rank returned from the check of the test's name.

    A module that uses it has a fixture ``ranks``: what each rank returned, by
    check, where an exception is told as its text.
    """
    name = request.function.__name__.removeprefix("test_")
    found = [rank[name] for rank in ranks]
    errors = [f for f in found if isinstance(f, str)]
    assert not errors, errors[0]
    return found


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop Python's clock; it goes on by the seconds that this is given."""
    now = 0.0

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    return work


@pytest.fixture
def pretend_gpus(monkeypatch: pytest.MonkeyPatch) -> PretendGpus:
    """Make torch and the driver tell of k GPUs; no tensor can lie on them."""
    import torch

    from dpkit.accelerator import driver, found, kernels

    def pretend(count: int) -> None:
        # The newest that it has kernels for; with a torch for the CPU, any.
        newest = (kernels.architectures() or ["sm_90"])[-1]
        capability = (int(newest[3:-1]), int(newest[-1]))
        gpus = [driver.Gpu("pretended", capability)] * count
        answer = driver.DriverAnswer(gpus=gpus)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(found, "ask_driver", lambda *visible: answer)

    return pretend


@pytest.fixture(scope="session")
def driver_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder for LD_LIBRARY_PATH: it stands in for NVIDIA's driver."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("no compiler of C, or not Linux")
    folder = tmp_path_factory.mktemp("driver_stub")
    library = folder / "libcuda.so.1"
    source = ROOT / "tests" / "driver_stub" / "driver_stub.c"
    words = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library]
    subprocess.run([*words, source], check=True)
    shutil.copy(library, folder / "libnvidia-ml.so.1")
    return folder


@pytest.fixture(
    params=["sim", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def need_gpus() -> NeedGpus:
    """Skip a test where there are fewer GPUs than it needs."""
    from dpkit.accelerator import real_devices

    def need(count: int) -> None:
        available = len(real_devices())
        if available < count:
            pytest.skip(f"GPUs needed: {count}, here: {available}")

    return need


@pytest.fixture
def get_ranks(kind: str, need_gpus: NeedGpus) -> GetDevices:
    """Give k devices of the kind; where there are two GPUs or more, again.

    Two GPUs then do for a ring of three: it crosses from one to the other.
    """

    import dpkit

    def get(count: int) -> list["torch.device"]:
        if kind != "cuda":
            return dpkit.devices(count, kind)
        need_gpus(min(count, 2))
        gpus = dpkit.devices(kind="cuda")
        return [gpus[r % len(gpus)] for r in range(count)]

    return get


@pytest.fixture
def get_devices(kind: str, need_gpus: NeedGpus) -> GetDevices:
    """Give k devices of the kind; skip where there are fewer."""

    import dpkit

    def get(count: int) -> list["torch.device"]:
        if kind == "cuda":
            need_gpus(count)
        return dpkit.devices(count, kind)

    return get
