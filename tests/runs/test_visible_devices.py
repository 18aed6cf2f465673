"""Ranks that see one GPU, by their launcher or by their own choice."""

import sys

import pytest

from tests.runs.running_scripts import torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

CHOICE = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
"""

SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
net = DistributedDataParallel(torch.nn.Linear(3, 2).cuda(), device_ids=[0])
net(torch.full((4, 3), rank + 1.0, device="cuda")).sum().backward()
grad = net.module.weight.grad
print(
    f"rank {rank}: {torch.cuda.device_count()} GPU,",
    f"{grad.device}, {grad.get_device()}, {torch.cuda.current_device()},",
    f"{grad.mean().item()}, {torch.cuda.memory_allocated(0) > 0}",
)
try:
    torch.cuda.set_device(1)
except RuntimeError as error:
    print(f"rank {rank}: {error}")
"""
NODES = "--nnodes", "2", "--nproc-per-node", "2"


def check(text):
    for rank in range(4):
        assert f"rank {rank}: 1 GPU, cuda:0, 0, 0, 10.0, True" in text
        refused = f"rank {rank}: CUDA error: invalid device ordinal"
        assert refused in text
    assert "nothing was found" in text


@pytest.mark.slow
def test_a_rank_chooses_before_it_uses_cuda(tmp_path):
    check(torchrun(tmp_path, *NODES, script=CHOICE + SCRIPT))


@pytest.mark.slow
def test_a_launcher_gives_each_rank_its_own(tmp_path):
    check(torchrun(tmp_path, *NODES, "--own-gpu", script=SCRIPT))


ORDER = """
import os
own = ("0,1,7,0", "1,0,7,0")[int(os.environ["RANK"])]
os.environ["CUDA_VISIBLE_DEVICES"] = own
import torch
x = torch.ones(1000, device="cuda:0")
used = [torch.cuda.memory_allocated(k) for k in range(2)]
print(f"{own}: {torch.cuda.device_count()} GPUs, {x.device}, {used}")
"""


@pytest.mark.slow
def test_devices_have_the_order_of_the_list(tmp_path):
    """It ends before 7, which is not there; each rank has its own first."""
    text = torchrun(tmp_path, "--nproc-per-node", "2", script=ORDER)
    for own in ("0,1,7,0", "1,0,7,0"):
        assert f"{own}: 2 GPUs, cuda:0, [4000, 0]" in text
    assert "nothing was found" in text
