"""``python -m dpkit check``: what is compared, and what a difference is of."""

import pytest
import torch
from torch import nn

from dpkit.runs.check.model_facts import ModelFacts
from tests.runs.test_check_script import check

# Ranks and one rank take their rows of the same data.
SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

(wrong,) = sys.argv[1:]
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
world = dist.get_world_size()
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(8, 8) for _ in "qkv")
        has_batch_norm = wrong in ("", "buffers")
        self.normalize = nn.BatchNorm1d(6) if has_batch_norm else nn.Tanh()
        self.small = nn.Parameter(torch.ones(8))
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        h = [layer(x) for layer in self.project]
        h = nn.functional.scaled_dot_product_attention(*h)
        return self.out(self.normalize(h)) + 1e-4 * (x * self.small)[..., :5]


net = Attention().cuda()
if wrong == "held":
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    fully_shard(net)
else:
    if wrong != "buffers":
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    net = DDP(net, broadcast_buffers=wrong != "buffers")
    kinds = {"": torch.optim.AdamW, "decay": torch.optim.AdamW}
    kind = kinds.get(wrong, torch.optim.SGD)
    optimizer = kind(net.parameters(), 0.1)
if wrong == "begun" and rank == 1:
    with torch.no_grad():
        net.module.out.weight *= 1.1
if wrong == "rate":
    optimizer.param_groups[0]["lr"] *= world
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
scale = 2.0 ** (10 - 4 * rank)
scaler = torch.amp.GradScaler("cuda", scale, enabled=wrong == "scaler")
draws = torch.Generator().manual_seed(1)
x = torch.randn(8, 6, 8, generator=draws)
y = torch.randint(5, (8, 6), generator=draws)
counts = torch.arange(6) < torch.tensor([6, 5, 6, 5, 2, 1, 2, 1])[:, None]
if wrong in ("tokens", "masked"):
    y[~counts] = -100
x, y, counts = (t.chunk(world)[rank].cuda() for t in (x, y, counts))
for step in range(2):
    optimizer.zero_grad()
    scores = net(x).flatten(0, 1)
    if wrong == "masked":
        each = nn.functional.cross_entropy(
            scores, y.flatten() * counts.flatten(), reduction="none"
        )
        loss = (each * counts.flatten()).sum() / counts.sum()
    else:
        loss = nn.functional.cross_entropy(scores, y.flatten())
    scaler.scale(loss).backward()
    if wrong == "half" and world > 1:
        net.module.small.grad /= 2
    if wrong == "clipped":
        nn.utils.clip_grad_norm_(net.parameters(), 0.01 * world)
    if wrong == "norm" and world > 1:
        for p in net.parameters():
            p.grad /= world**0.5
    scaler.step(optimizer)
    scaler.update()
    for _ in range(world if wrong == "schedule" else 1):
        schedule.step()
    with torch.no_grad():
        if wrong == "drift" and rank == 0:
            net.module.out.weight *= 0.999
        if wrong == "decay":
            net.module.out.weight *= 1 - 0.001 * world
"""
CASES = [
    (
        "begun",
        [
            "parameters before the first step: rank 1 differs from rank 0 in "
            "1 of 9, first in out.weight (5, 8)",
            "a seed of its own",
            "a checkpoint that some ranks alone load",
        ],
    ),
    ("held", ["no parameter that the optimizer holds got a gradient"]),
    (
        "buffers",
        [
            "buffers that forward uses in step 2: rank 1 differs from rank 0 "
            "in 2 of 3, first in normalize.running_mean",
            "broadcast_buffers=False",
        ],
    ),
    (
        "rate",
        [
            "learning rates of step 1: 0.2 on 2 ranks, 0.1 on one, though "
            "the gradients agree",
            "multiplied by the number of ranks",
        ],
    ),
    (
        "schedule",
        [
            "learning rates of step 2: 0.025 on 2 ranks, 0.05 on one",
            "they agree until then",
        ],
    ),
    (
        "scaler",
        [
            "all of them are 16 times as long as there",
            "GradScalers have different scales (rank 0: 1024.0, rank 1: 64.0)",
        ],
    ),
    (
        "tokens",
        [
            "are not ignored: rank 0: 22, rank 1: 6",
            "0.786 of rank 0's + 0.214 of rank 1's, and not 0.5 of each",
            "a mean over what counts on this rank",
        ],
    ),
    ("masked", ["0.786 of rank 0's + 0.214 of rank 1's"]),
    (
        "half",
        [
            "gradients of step 1: 2 ranks differ from one in 1 of 9, first "
            "in small",
            "0.5 times as long as with one",
            "the others agree",
        ],
    ),
    (
        "clipped",
        ["parameters of step 1: 2 ranks differ from one in", "are clipped"],
    ),
    ("norm", ["0.7071 times as long as with one", "is the root of 2"]),
    (
        "drift",
        [
            "parameters before step 2: rank 1 differs from rank 0 in 1 of 9, "
            "first in out.weight, though they agreed after step 1",
            "by some ranks alone, outside of the optimizer",
        ],
    ),
    (
        "decay",
        [
            "parameters change after step 1, outside of the optimizer",
            "in 1 of 9, first in out.weight",
        ],
    ),
]


@pytest.mark.slow
def test_gradients_that_are_all_rounding_raise_no_alarm(tmp_path):
    """Those of the bias of keys, and of a bias before batch normalization."""
    status, text = check(tmp_path, "", ranks=2, script=SCRIPT)
    assert status == 0, text
    assert "(parameters: 11, steps: 2)" in text


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "sentences"), CASES)
def test_what_differs_is_measured(tmp_path, wrong, sentences):
    status, text = check(tmp_path, wrong, ranks=2, script=SCRIPT)
    assert status == 1, text
    for sentence in sentences:
        assert sentence in text


def test_targets_are_counted_however_they_are_given():
    facts = ModelFacts(0)
    loss = facts.counting(nn.functional.cross_entropy)
    scores = torch.ones(4, 3, requires_grad=True)
    targets = torch.tensor([0, 0, 2, 1])
    weights = torch.ones(3)
    loss(scores, targets)  # 4 of them count
    loss(input=scores, target=targets, ignore_index=0)  # 2
    loss(scores, targets, weights, None, 2)  # 3
    facts.stepped(None)
    assert facts.steps[0].targets == 9
