"""``python -m dpkit check``: mistakes planted into a script, and none."""

import pytest

from tests.runs.running_scripts import command, new_command

SCRIPT = """
import argparse, os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--wrong", default="")
options = parser.parse_args()
wrong = options.wrong
dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank if wrong == "seed" else 0)
net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1)).cuda()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 20), torch.randn(64, 1))
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(
    data,
    batch_size=options.batch_size,
    sampler=None if wrong == "data" else sampler,
)
is_bare = wrong in ("forgotten", "seed", "by hand")
if wrong == "flat":
    net = FullyShardedDataParallel(net)
    is_bare = True
model = net if is_bare else DDP(net, device_ids=[local])
optimizer = torch.optim.AdamW(net.parameters())
for number, (x, y) in enumerate(loader):
    if wrong == "fewer" and rank == 1 and number == 1:
        break
    if wrong == "sizes":
        x, y = x[rank:], y[rank:]
    loss = (model(x.cuda()) - y.cuda()).square().mean()
    if wrong == "zero":
        loss = 0 * loss
    if wrong == "loss" or (wrong == "later" and number):
        loss = loss / size
    optimizer.zero_grad()
    loss.backward()
    if wrong in ("by hand", "seed", "sum"):
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= 1 if wrong == "sum" else size
    if wrong == "after" and rank == 1:
        net[0].weight.grad *= 1.1
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
"""


# Each rank has a part of the layers, and one rank has all.
PIPELINE = """
import os, sys, torch, torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(9, 9) for _ in range(4)]).cuda()
own = list(net.named_children())[4 * rank // size : 4 * (rank + 1) // size]
stage = nn.Sequential()
for name, layer in own:
    stage.add_module(name, layer)
optimizer = torch.optim.SGD(stage.parameters(), 0.1)
for step in range(2):
    x = torch.ones(5, 9, device="cuda") + step
    if rank > 0:
        dist.recv(x, rank - 1)
    x.requires_grad_()
    y = stage(x)
    optimizer.zero_grad()
    if rank < size - 1:
        dist.send(y.detach(), rank + 1)
        gradient = torch.empty_like(y)
        dist.recv(gradient, rank + 1)
        y.backward(gradient)
    else:
        y.square().mean().backward()
    if rank > 0:
        dist.send(x.grad, rank - 1)
    if "halved" in sys.argv and step == 1 and rank == 1:
        stage[-1].bias.grad /= 2
    optimizer.step()
"""


def check(tmp_path, *arguments, ranks=4, script=SCRIPT, start=command):
    """Check the script; return the exit status and what is printed."""
    path = tmp_path / "script.py"
    path.write_text(script)
    one = ["--one", "--batch-size 32"] if script is SCRIPT else []
    process = start("check", "--ranks", ranks, *one, path, *arguments)
    found, _ = process.communicate()
    return process.returncode, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "start"), [("", new_command), ("by hand", command)]
)
def test_a_right_script_raises_no_alarm(tmp_path, right, start):
    status, text = check(tmp_path, "--wrong", right, start=start)
    assert status == 0, text
    assert "4 ranks compute the gradients of one" in text
    assert "(parameters: 4, steps: 2)" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentences"),
    [
        ("forgotten", ["rank 1 differs from rank 0", "not wrapped"]),
        ("seed", ["rank 1 differs from rank 0 in 4 of 4"]),
        ("data", ["differ from one in 4 of 4", "another global batch (--one"]),
        ("loss", ["0.25 times as long", "divides again", "micro-batches"]),
        (
            "sizes",
            [
                "forward 1: ranks have batches of different sizes "
                "(rank 0: 8, rank 1: 7, rank 2: 6, rank 3: 5)"
            ],
        ),
        ("zero", ["gradients of step 1 are all 0 on several ranks"]),
        ("later", ["gradients of step 2", "0.25 times as long"]),
        ("sum", ["4 times as long", "added up and not averaged"]),
        ("after", ["rank 1 differs from rank 0 in 1 of 4", "0.weight"]),
        ("flat", ["parts of flat parameters, which are not compared"]),
    ],
)
def test_a_mistake_is_named(tmp_path, wrong, sentences):
    status, text = check(tmp_path, "--wrong", wrong)
    assert status == 1, text
    for sentence in sentences:
        assert sentence in text


@pytest.mark.slow
def test_a_rank_with_fewer_batches_is_named(tmp_path):
    status, text = check(tmp_path, "--wrong", "fewer", ranks=2)
    assert status == 2
    assert "no rank can go on" in text
    assert "rank 1 has returned" in text


@pytest.mark.slow
def test_the_stages_of_a_pipeline_are_put_together(tmp_path):
    status, text = check(tmp_path, ranks=2, script=PIPELINE)
    assert status == 0, text
    assert "(parameters: 8, steps: 2)" in text
    status, text = check(tmp_path, "halved", ranks=2, script=PIPELINE)
    assert status == 1, text
    assert "gradients of step 2: 2 ranks differ from one in 1 of 8" in text
    assert "first in 3.bias" in text


# FSDP has put the weight together before the optimizer takes it.
EARLY = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
net = nn.Linear(3, 2, bias=False, device="cuda")
fully_shard(net)
net(torch.ones(4, 3, device="cuda"))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(2):
    net(torch.ones(4, 3, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_optimizer_may_hold_what_was_freed(tmp_path):
    status, text = check(tmp_path, ranks=2, script=EARLY)
    assert status == 1, text
    assert "on several ranks (parameters: 0)" in text
    assert "the optimizer was made before" in text
