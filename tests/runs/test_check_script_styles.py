"""``python -m dpkit check`` on right scripts of other styles."""

import sys

import pytest
import torch

from dpkit.runs.check.checking import _as_far_as_same
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.same_examples import places_among
from tests.runs.running_scripts import looked_for, section, torchrun
from tests.runs.test_check_script import check

on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

BEGIN = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
"""

# A module changes the images, which are few, so that the sampler repeats one
# within a step; batches are a defaultdict with an array of NumPy's; an
# iterator knows its length; and there are three models of one class.
STYLES = (
    BEGIN
    + """
from collections import defaultdict
import numpy as np


class Images(Dataset):
    change = nn.Linear(8, 6)

    def __len__(self):
        return 9

    def __getitem__(self, i):
        x = torch.randn(8, generator=torch.Generator().manual_seed(i))
        return self.change(x).detach(), i % 3


def collate(examples):
    batch = defaultdict(list)
    batch["x"] = torch.stack([x for x, _ in examples])
    batch["y"] = np.array([y for _, y in examples])
    return batch


Images.change.requires_grad_(False)
data = Images()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=5, sampler=sampler, collate_fn=collate)
nets = [
    DDP(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).cuda()),
    *(DDP(nn.Linear(4, width).cuda()) for width in (5, 3)),
]
parameters = [p for net in nets for p in net.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    batches = iter(loader)
    for _ in range(len(batches)):
        batch = next(batches)
        first, *heads = nets
        hidden = first(batch["x"].cuda())
        y = torch.from_numpy(batch["y"]).cuda()
        loss = nn.functional.cross_entropy(heads[1](hidden), y)
        loss = loss + heads[0](hidden).square().mean()
        if "divided" in sys.argv:
            loss = loss / world
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)


@on_linux
@pytest.mark.slow
def test_a_right_script_of_many_styles_raises_no_alarm(tmp_path):
    status, text = check(tmp_path, ranks=2, script=STYLES)
    assert status == 0, text
    assert "2 ranks compute the gradients of one" in text
    assert "parameters: 8, steps: 2" in text
    assert "by the statistics of each rank's own examples" in text


@on_linux
@pytest.mark.slow
def test_a_mistake_in_it_is_found(tmp_path):
    status, text = check(tmp_path, "divided", ranks=2, script=STYLES)
    assert status == 1, text
    assert "2 ranks differ from one in 7 of 8, first in 0.weight" in text
    assert "all of these are 0.5 times as long" in text


# Its data lie on the GPU, and its scaler leaves out the first steps, whose
# gradients it has clipped.
SCALED = (
    BEGIN
    + """
data = TensorDataset(torch.randn(128, 16).cuda())
sampler = DistributedSampler(data)
net = DDP(nn.Linear(16, 4).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**11)
for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = (30 * net(x)).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(f"scale: {scaler.get_scale()}")
"""
)


@on_linux
@pytest.mark.slow
def test_steps_that_a_scaler_leaves_out_are_no_steps(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "2", script=SCALED)
    assert "scale: 2048.0" not in text  # steps were left out
    looked_for(section(text, "Found"))
    status, text = check(tmp_path, ranks=2, script=SCALED)
    assert status == 0, text
    assert "2 ranks compute the gradients of one" in text


def test_a_rank_that_has_no_step_left():
    """As a script that resumes from what the ranks have just written."""
    nothing = Kept([], [], 0, [], 0.0, [], {})
    found = _as_far_as_same(
        nothing, [nothing, nothing], "as it is", is_played=False
    )
    assert found.alarms == []
    assert "resumes from a checkpoint" in found.missing


def test_a_number_stands_in_as_many_places_as_it_is_there():
    others = [5.0, 9.0, 5.0, 3.0]

    def places(*some):
        numbers = (
            torch.tensor(x, dtype=torch.float64) for x in (some, others)
        )
        return places_among(*numbers).tolist()

    assert places(5, 3, 5) == [0, 3, 2]
    assert places(5, 5, 5) == [0, 2, -1]
    assert places(4, 9 + 1e-9) == [-1, 1]
    none = torch.tensor([], dtype=torch.float64)
    assert places_among(torch.tensor([1.0]), none).tolist() == [-1]
    assert places_among(none, torch.tensor([1.0])).tolist() == []
