"""How ranks share examples: mistakes are found, and what is right is not."""

import sys

import pytest

from tests.runs.running_scripts import looked_for, section, torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

SCRIPT = """
import random, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data import RandomSampler, random_split
from torch.utils.data.distributed import DistributedSampler

how = sys.argv[1:]
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)


class Data(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i >= self.count:
            raise IndexError
        if "by index" in how:
            torch.manual_seed(i)
        x = torch.full((8,), float(i))
        if "python" in how:
            return x + random.random()
        return x + torch.rand(()) if "torch" in how else x


def train(loader):
    for x in loader:
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(1)


def evaluate(count, gather=False):
    data = Data(count)
    loader = DataLoader(data, 1, sampler=DistributedSampler(data))
    next(iter(loader))  # a look
    total = torch.zeros(1).cuda()
    with torch.no_grad():
        for x in loader:
            total += model(x.cuda()).sum()
    if gather:
        every = [torch.zeros(1).cuda() for _ in range(size)]
        dist.all_gather(every, total)
    dist.all_reduce(total)


model = DDP(nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
if "seeds" in how:
    torch.manual_seed(rank)
    random.seed(rank)
else:
    random.seed(0)
data = Data(33)
given = {"sampler": DistributedSampler(data)}
if "all" in how:  # each rank goes through all
    given = {"shuffle": True}
elif "chance" in how:
    given = {"sampler": RandomSampler(data, num_samples=16)}
elif "samplers" in how:
    given = {"sampler": DistributedSampler(data, seed=rank)}
elif "split" in how:
    part, _ = random_split(data, [24, 9])
    data = Subset(part, range(rank, 24, size))
    given = {"shuffle": True}
workers = 2 if "workers" in how else 0
loader = DataLoader(data, 4, num_workers=workers, **given)
train(loader)
if "look" in how:
    dist.all_reduce(torch.ones(1).cuda())
train(loader)
if "evaluate" in how:
    evaluate(9)
elif "gather" in how:
    evaluate(9, gather=True)
else:
    evaluate(8)
"""


TWO = "--nproc-per-node", "2"


def found(tmp_path, how):
    text = torchrun(tmp_path, *TWO, script=SCRIPT, arguments=how.split("+"))
    return section(text, "Found")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("torch+workers", "all ranks draw the same random numbers where they"),
        ("python", "all ranks draw the same random numbers where they load"),
        ("evaluate", "an evaluation adds up 10 examples of 9: a Distributed"),
        ("samplers", "of 33 examples, "),
        ("split+seeds", "of 33 examples, "),
    ],
)
def test_a_mistake_is_found(tmp_path, how, sentence):
    (line,) = found(tmp_path, how)
    assert line.startswith(f"  ! {sentence}"), line
    if how in ("samplers", "split+seeds"):
        assert "are given to several ranks" in line
        assert (" to none" in line) == (how == "samplers")
        assert "in the first pass of a loader (script.py:35)" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *("torch+workers+seeds", "python+seeds", "torch+by index"),
        *("gather", "all+seeds", "chance+seeds", "split", "look"),
    ],
)
def test_what_is_right_is_not_found(tmp_path, how):
    sentence = looked_for(found(tmp_path, how))
    for words in ("counts examples twice", "same augmentation", "one pass"):
        assert words in sentence


SHUFFLED = """
import random, sys
import numpy as np
import torch.distributed as dist

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
how = sys.argv[1:]
random.seed(0 if "same" in how else rank)
np.random.seed(0 if "same" in how else rank)
files = [f"part {number}" for number in range(16)]
if "own" in how:  # each rank has other files before
    files = [f"{name} of {rank}" for name in files]
random.shuffle(files)
order = np.random.permutation(16)
batch = list(range(16))  # of what a rank has made itself, as in PPO
random.shuffle(batch)
every_second = batch[::2]
if "numpy" in how:
    mine = order[rank::size]
elif "lists" in how:
    mine = files[rank::size]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("used", "line"), [("files[", "files in"), ("order[", "order in")]
)
def test_parts_of_what_is_shuffled_differently_are_found(tmp_path, used, line):
    unused = {"files[": "order[", "order[": "files["}[used]
    script = SHUFFLED.replace(f"mine = {unused}rank::size]", "pass")
    lines = section(torchrun(tmp_path, *TWO, script=script), "Found")
    assert len(lines) == 1
    assert lines[0].startswith(f"  ! each rank shuffles {line} another order")
    number = 14 if used == "files[" else 15
    assert f"(script.py:{number}): of 16, " in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["same", "own"])
def test_parts_of_one_order_are_not_found(tmp_path, how):
    script = SHUFFLED
    if how == "own":
        script = SHUFFLED.replace("mine = order[rank::size]", "pass")
    text = torchrun(tmp_path, *TWO, script=script, arguments=[how])
    assert "nothing was found" in section(text, "Found")[0]
