"""Programs that GPU owners start: they use the GPUs, and only if asked to."""

import json

import pytest
import torch
from torch import nn

import dpkit
from dpkit.__main__ import main
from dpkit.calibration import probes
from dpkit.calibration.predictions import Case
from dpkit.commands import calibrate as command


@pytest.mark.cuda
def test_a_gpu_is_calibrated_where_simulated_devices_are(
    need_gpus, monkeypatch, tmp_path, capsys
):
    """The command makes simulated devices before it measures the GPU."""
    need_gpus(1)
    small = probes.Sizes(
        # The last of each takes longer than a launch, on any GPU.
        rows=[16, 2048],
        lengths=[1, 4**12],
        images=[(1, 8, 8), (64, 64, 28)],
        pool=2**20,
    )
    monkeypatch.setattr(probes, "ON_GPU", small)
    # The double of CUDA takes very long in the others.
    for name in ("GPU_DTYPES", "GPU_CONVOLUTIONS"):
        monkeypatch.setattr(probes, name, ("float32",))
    case = Case("dense", lambda: nn.Linear(7, 10), (7,), [5])
    measured = command.predictions
    monkeypatch.setattr(
        command, "predictions", lambda *args: measured(*args, cases=[case])
    )
    dpkit.sim.register()
    file = tmp_path / "gpu.json"
    words = f"calibrate --device cuda:0 --force --output {file}"
    main(words.split())
    (row,) = json.loads(file.read_text("utf-8"))["provenance"]["check"]
    assert row["measured_seconds"] > 0
    assert "Training steps that it has not seen, on cuda:0" in (
        capsys.readouterr().out
    )


@pytest.mark.cuda
def test_pytorchs_data_parallel_works_where_simulated_devices_are(need_gpus):
    need_gpus(2)
    gpus = dpkit.devices(2, kind="cuda")
    dpkit.sim.register()
    torch.manual_seed(0)
    net = nn.Linear(4, 3).double()
    X = torch.randn(7, 4).double()
    net(X).square().sum().backward()
    expected = net.weight.grad.clone()
    net.zero_grad()
    parallel = nn.DataParallel(net.to(gpus[0]), [0, 1])
    parallel(X.to(gpus[0])).square().sum().backward()
    torch.testing.assert_close(net.weight.grad.cpu(), expected)


@pytest.mark.cuda
def test_numbers_of_more_devices_than_gpus_lie_on_the_gpu(need_gpus, run_new):
    """Also on hardware that was chosen."""
    need_gpus(1)
    count = torch.cuda.device_count() + 1
    told = run_new(
        "import torch, dpkit\n"
        f"dpkit.sim.configure({count}, accelerator='a100')\n"
        f"last = dpkit.devices({count})[-1]\n"
        "x = torch.ones(3, device=last, requires_grad=True)\n"
        "(x * 2).sum().backward()\n"
        "print(last, x.grad.backing.device, x.grad.tolist())\n"
    )
    assert told == f"sim:{count - 1} cuda:0 [2.0, 2.0, 2.0]\n"


SAVING = """
import sys
import dpkit
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

def save(folder):
    net = torch.nn.Linear(8, 8, device="sim")
    fully_shard(net)
    state = {"weight": net.state_dict()["weight"]}
    dcp.save(state, checkpoint_id=folder)
    own = net.weight.to_local()
    before = own.detach().clone()
    own.detach().zero_()
    dcp.load(state, checkpoint_id=folder)
    return torch.equal(before, own), str(own.backing.device)

dpkit.sim.configure(COUNT)
dpkit.devices(COUNT)
print(dpkit.sim.launch(save, 2, FOLDER))
"""


@pytest.mark.cuda
def test_ranks_whose_numbers_lie_on_the_gpu_are_saved(
    need_gpus, run_new, tmp_path
):
    need_gpus(1)
    count = torch.cuda.device_count() + 2
    program = SAVING.replace("COUNT", str(count))
    told = run_new(program.replace("FOLDER", repr(str(tmp_path))))
    assert told == f"{[(True, 'cuda:0')] * 2}\n"


COPYING = """
import dpkit
import torch

dpkit.sim.configure(COUNT)
first, *_, last = dpkit.devices(COUNT)
large = torch.ones(2**22, device=last)
for _ in range(20):
    large = large * 1.0 + 1.0
on_host = large.to("cpu", non_blocking=True)
also = torch.empty(2**22).pin_memory()
also.copy_(large, non_blocking=True)
torch.sim.synchronize(last)  # of the simulated clock
print(on_host.min().item(), also.min().item())
pinned = torch.ones(2**22).pin_memory()
there = pinned.to(first, non_blocking=True)
torch.sim.synchronize(first)
pinned.zero_()
print(there.min().item())
"""


@pytest.mark.cuda
def test_copies_have_ended_when_the_simulated_clock_says_so(
    need_gpus, run_new
):
    """Else the host would read, or write, while the GPU still copies."""
    need_gpus(1)
    count = torch.cuda.device_count() + 1
    told = run_new(COPYING.replace("COUNT", str(count)))
    assert told == "21.0 21.0\n1.0\n"
