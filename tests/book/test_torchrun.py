"""Programs in real processes, and the program that the page shows."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpbook.common import torchrun as module
from dpbook.common.datasets import load_fashion_mnist
from dpbook.common.torchrun import torchrun
from dpbook.data_parallelism_concise import ddp_program


def on_one_device():
    """Two epochs on the CPU, whole batches in the order of the sampler."""
    torch.manual_seed(0)
    layers = nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10)
    net = nn.Sequential(nn.Flatten(), *layers).double()
    images, labels = load_fashion_mnist()[0]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(200):
            optimizer.zero_grad()
            scores = net(images[rows].double())
            F.cross_entropy(scores, labels[rows]).backward()
            optimizer.step()
    return net.state_dict()


@pytest.mark.slow
def test_two_processes_end_as_one_device_does(run_ranks, tmp_path):
    expected = on_one_device()
    run_ranks(2, ddp_program.__name__, tmp_path / "found.pt")
    found = torch.load(tmp_path / "found.pt")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].cpu() - value).abs().max() < 1e-10, name


@pytest.fixture(params=["forked", "started"])
def way(request, monkeypatch):
    """torchrun as a fork of a Python that has imported torch, or as it is."""
    if request.param == "started":
        monkeypatch.setattr(module, "fork_server", lambda environment: None)
    return request.param


# It imports what lies beside it, and ends as many programs do.
PROGRAM = """
import os, sys, beside
def tell(*words):  # as a whole: torchrun starts Python without a buffer
    sys.stdout.write(" ".join(words) + "\\n")
tell(beside.__name__, __name__, *sys.argv[1:], os.environ["OMP_NUM_THREADS"])
tell(*(os.environ[x] for x in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
sys.exit({status})
"""


def test_a_program_runs_as_in_a_terminal(way, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "beside.py").touch()
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(status=0))
    each = ["beside __main__ a --b 1"] * 2
    assert sorted(torchrun(2, file, "a", "--b")) == [
        *["0 0 2", "1 1 2"],
        *each,
    ]


# Both ranks have printed the first word before one prints the second.
TWO_WORDS = """
import os, pathlib, time
class Later:
    def __str__(self):
        pathlib.Path(os.environ["RANK"]).touch()
        while not all(pathlib.Path(rank).exists() for rank in "01"):
            time.sleep(0.01)
        return "second"
print("first", Later())
"""


def test_lines_of_forked_ranks_are_whole(tmp_path):
    """Also where Python is told to write each word by itself."""
    (tmp_path / "program.py").write_text(TWO_WORDS)
    caller = (
        "from dpbook.common.torchrun import torchrun\n"
        "print(torchrun(2, 'program.py'))"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", caller],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    )
    assert printed == "['first second', 'first second']\n"


def test_a_program_that_ends_by_a_status_has_failed(tmp_path):
    (tmp_path / "beside.py").touch()
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(status=3))
    with pytest.raises(RuntimeError, match="exitcode: 3"):
        torchrun(1, file)


def test_where_ranks_have_gpus_torchrun_is_not_forked(tmp_path, monkeypatch):
    """It would have asked for GPUs, and CUDA fails in what is forked then."""
    started = []
    monkeypatch.setattr(module, "gpus_for_ranks", lambda: 1)
    monkeypatch.setattr(module, "fork_server", started.append)
    false = SimpleNamespace(executable="false")
    monkeypatch.setattr(module, "sys", false)
    assert torchrun(1, "file", kill_at="step 4") == []
    assert not started


@pytest.mark.slow
def test_a_process_that_fails_is_reported(way, tmp_path):
    file = tmp_path / "fails.py"
    file.write_text("import os\nassert os.environ['RANK'] != '1', 'rank 1'\n")
    with pytest.raises(RuntimeError, match="rank 1"):
        torchrun(2, file)


@pytest.mark.weekly
def test_all_processes_are_killed_at_a_line(tmp_path):
    file = tmp_path / "waits.py"
    file.write_text("import time\nprint('now')\ntime.sleep(300)\n")
    assert torchrun(1, file, kill_at="now") == ["now"]


def test_a_launcher_that_fails_is_reported(monkeypatch):
    false = SimpleNamespace(executable="false")  # the program: it fails
    monkeypatch.setattr(module, "sys", false)
    monkeypatch.setattr(module, "fork_server", lambda environment: None)
    with pytest.raises(RuntimeError, match=r"\(exit status: 1\)"):
        torchrun(2, "file")
    assert torchrun(2, "file", kill_at="step 4") == []


# -- on GPUs


# What each rank prints, as a program of DDP leaves it.
SEEN = """
import sys, torch
print(torch.cuda.device_count(), flush=True)
"""


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["sim", "cpu"])
def test_programs_of_torchrun_see_no_gpu_if_others_are_asked_for(
    need_gpus, monkeypatch, tmp_path, kind
):
    need_gpus(1)
    program = tmp_path / "seen.py"
    program.write_text(SEEN)
    count = str(torch.cuda.device_count())
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    assert torchrun(1, program) == [count]
    monkeypatch.setenv("DPKIT_DEVICES", kind)
    assert torchrun(1, program) == ["0"]


DDP = """
import sys, torch
from {module} import main
main()
print("current", torch.cuda.current_device(), flush=True)
"""


@pytest.mark.cuda
@pytest.mark.parametrize(
    "module",
    ["dpbook.cheat_sheet.minimal_ddp",
     "dpbook.data_parallelism_concise.ddp_program"],
)  # fmt: skip
def test_each_rank_of_ddp_has_its_own_current_gpu(
    need_gpus, monkeypatch, tmp_path, module
):
    """Without it each rank would start cuda:0 as well, and a barrier guess."""
    need_gpus(2)
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    program = tmp_path / "program.py"
    program.write_text(DDP.format(module=module))
    lines = torchrun(2, program, tmp_path / "parameters.pt")
    assert {"current 0", "current 1"} <= set(lines)
