"""``python -m dpkit check`` on forms that public scripts have."""

import pytest

from tests.runs.test_check_script import check

SCRIPT = """
import sys, torch, torch.distributed as dist
from dataclasses import dataclass
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

how = sys.argv[1]


@dataclass
class Masked:
    x: torch.Tensor
    mask: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)
        self.norm = nn.BatchNorm1d(7) if "task" in how else nn.Identity()
        self.register_buffer("mask", torch.tensor([0, 0, -torch.inf]))

    def forward(self, given):
        x = given.x * given.mask if isinstance(given, Masked) else given
        h = self.second(self.norm(self.first(x)).relu())
        return (h + self.mask).softmax(1)


class Task(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.task_module = module

    def forward(self, given):
        return self.task_module(given)


def collate(rows):
    x = torch.stack([row[0] for row in rows])
    return Masked(x, torch.ones_like(x))


class Averaging(torch.optim.Optimizer):
    # It averages gradients inside of its step, in copies of them.
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-6})

    @torch.no_grad()
    def step(self):
        for number, p in enumerate(self.param_groups[0]["params"]):
            mean = p.grad.clone()
            if how == "averages nothing":
                dist.all_reduce(p.grad.norm())
            elif how != "averages three" or number != 1:
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            p.add_(mean, alpha=-self.param_groups[0]["lr"])


dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = Net().cuda()
if "averages" not in how:
    net = DDP(net, broadcast_buffers="apart" not in how)
task = Task(net)
data = TensorDataset(torch.randn(64, 5))
loader = DataLoader(
    data, batch_size=8, sampler=DistributedSampler(data),
    collate_fn=collate if "class" in how else None,
)
if "zero" in how:
    optimizer = ZeroRedundancyOptimizer(
        net.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01
    )
elif "averages" in how:
    optimizer = Averaging(net.parameters())
else:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for given in loader:
    if isinstance(given, Masked):
        given = Masked(given.x.cuda(), given.mask.cuda())
    else:
        given = given[0].cuda()
    optimizer.zero_grad()
    loss = (task if "task" in how else net)(given).square().mean()
    if how == "infinite":
        loss = loss / (loss - loss)
    if how == "averages, divided":
        loss = loss / world
    loss.backward()
    optimizer.step()
    if how == "zero, changed" and rank == 1:
        with torch.no_grad():
            net.module.first.bias += 1
"""


@pytest.mark.slow
def test_an_optimizer_may_call_another(tmp_path):
    """ZeroRedundancyOptimizer sends parameters once the other has stepped."""
    status, text = check(tmp_path, "zero", ranks=2, script=SCRIPT)
    assert status == 0, text
    assert "(parameters: 4, steps: 2)" in text
    status, text = check(tmp_path, "zero, changed", ranks=2, script=SCRIPT)
    assert status == 1, text
    assert "parameters before step 2: rank 1 differs from rank 0" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sentences"),
    [
        (
            "averages",
            [
                "2 ranks compute the gradients of one",
                "(parameters: 4, steps: 2)",
                "averages gradients inside of its step (parameters: 4)",
            ],
        ),
        (
            "averages three",
            [
                "parameters of step 1: rank 1 differs from rank 0 in 1 of 4, "
                "first in first.bias",
                "does so for some parameters and not for these",
            ],
        ),
        ("averages nothing", ["rank 1 differs", "they were not averaged"]),
        ("averages, divided", ["0.5 times as long", "divides again"]),
    ],
)
def test_an_optimizer_may_average_gradients_itself(tmp_path, how, sentences):
    """Those before its step differ; a forgotten one differs after it."""
    status, text = check(tmp_path, how, ranks=2, script=SCRIPT)
    assert status == (how != "averages"), text
    for sentence in sentences:
        assert sentence in text


@pytest.mark.slow
def test_a_batch_of_its_own_class_is_no_alarm(tmp_path):
    """One rank has its own batch then, and it is not known which."""
    status, text = check(tmp_path, "class", ranks=2, script=SCRIPT)
    assert status == 0, text
    assert "2 ranks agree with each other" in text
    assert "they are not compared with one rank" in text
    assert "--one gives one rank the batch of all" in text


@pytest.mark.slow
def test_a_module_may_hold_the_wrapped_model(tmp_path):
    """The wrapper sends its buffers when it is called, inside of the other."""
    status, text = check(tmp_path, "task", ranks=2, script=SCRIPT)
    assert status == 0, text
    assert "buffers that forward uses (4)" in text
    status, text = check(tmp_path, "task, apart", ranks=2, script=SCRIPT)
    assert status == 1, text
    assert "in 2 of 4, first in task_module.norm.running_mean" in text


@pytest.mark.slow
def test_gradients_that_are_no_numbers_are_not_compared(tmp_path):
    status, text = check(tmp_path, "infinite", ranks=2, script=SCRIPT)
    assert status == 1, text
    assert "gradients of step 1 are not finite on several ranks" in text
    assert "it looks like" not in text


# Tensor parallelism by hand: each rank has a part of two layers.
DIVIDED = """
import sys, torch, torch.distributed as dist
from torch import nn

how = sys.argv[1]
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if how != "unsent":
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Divided(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 6 // world, bias=False)
        self.second = nn.Linear(6 // world, 5, bias=False)
        self.third = nn.Linear(5, 3)

    def forward(self, x):
        return self.third(Sum.apply(self.second(self.first(x).relu())))


torch.manual_seed(0)
net = Divided().cuda()
with torch.no_grad():
    for layer in (net.first, net.second):
        layer.weight += 0.1 * rank
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    net(torch.ones(4, 5).cuda() + step).square().mean().backward()
    if how == "halved" and rank == 1:
        net.third.weight.grad /= 2
    if how == "averaged":
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
"""


@pytest.mark.slow
def test_parts_of_layers_are_no_replicas(tmp_path):
    """They differ among ranks, and are left out."""
    status, text = check(tmp_path, "", ranks=2, script=DIVIDED)
    assert status == 0, text
    assert "2 ranks agree with each other (parameters: 2, steps: 2)" in text
    assert "left out (2, first first.weight)" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("halved", "rank 1 differs from rank 0 in 1 of 2, first in third.we"),
        ("unsent", "rank 1 differs from rank 0 in 4 of 4, first in first.we"),
        ("averaged", "parameters before the first step: rank 1 differs"),
    ],
)
def test_what_is_no_part_is_compared(tmp_path, wrong, sentence):
    """A part has gradients of its own, and layers send in forward."""
    status, text = check(tmp_path, wrong, ranks=2, script=DIVIDED)
    assert status == 1, text
    assert sentence in text
