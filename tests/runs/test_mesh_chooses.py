"""A mesh of devices chooses the GPU of a rank, where its script has not."""

import sys

import pytest

from tests.runs.running_scripts import torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

SCRIPT = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

before = torch.cuda.is_initialized()
init_device_mesh("cuda", (4,))
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
after = torch.cuda.is_initialized()
print(f"rank {dist.get_rank()}: {x.device}, {x.item()}, {before}, {after}")
"""


@pytest.mark.slow
def test_a_mesh_chooses_by_the_local_rank(tmp_path):
    nodes = ("--nnodes", "2", "--nproc-per-node", "2")
    text = torchrun(tmp_path, *nodes, script=SCRIPT)
    for rank in range(4):
        found = f"rank {rank}: cuda:{rank % 2}, 4.0, False, True"
        assert found in text
