"""Programs in real processes, and the program that the page shows."""

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


@pytest.mark.slow
def test_a_process_that_fails_is_reported(tmp_path):
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
