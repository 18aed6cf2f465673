"""``python -m dpkit check``: ranks that average their parameters in rounds."""

import sys

import pytest

from tests.runs.test_check_script import check

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

SCRIPT = """
import sys, torch, torch.distributed as dist
from torch import nn

kind, steps = sys.argv[1], int(sys.argv[2])
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = nn.Linear(8, 2).cuda()
inner = torch.optim.AdamW(net.parameters(), lr=1e-6)
begun = [p.detach().clone() for p in net.parameters()]
outer = torch.optim.SGD(begun, lr=0.7, momentum=0.9, nesterov=True)
print(f"rank {rank} begins")
for step in range(1, steps + 1):
    inner.zero_grad()
    net(torch.randn(4, 8).cuda() + rank).square().mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    inner.step()
    if kind == "never" or step % 3:
        continue
    if kind == "DiLoCo":
        for p, start in zip(net.parameters(), begun):
            start.grad = start - p.data
            dist.all_reduce(start.grad, op=dist.ReduceOp.AVG)
        outer.step()
        for p, start in zip(net.parameters(), begun):
            p.data.copy_(start)
    else:
        averaged = [net.weight] if kind == "in part" else net.parameters()
        for p in averaged:
            dist.all_reduce(p.data, op=dist.ReduceOp.AVG)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "steps", "sentence"),
    [
        (
            "DiLoCo",
            8,
            "differ at step 2, step 3, step 5 …, and are equal again at step "
            "4, step 7: the ranks step alone and average their parameters "
            "later",
        ),
        (
            "local SGD",
            3,
            "differ at step 2, step 3, and are equal again at the end: the",
        ),
    ],
)
def test_ranks_may_average_their_parameters_later(
    tmp_path, kind, steps, sentence
):
    """The first run is stopped in the first round, by ``--steps``."""
    status, text = check(tmp_path, kind, steps, ranks=2, script=SCRIPT)
    assert status == 0, text
    assert "in 2 steps, ranks step by gradients of their own; they run" in text
    assert sentence in text
    assert text.count("rank 1 begins") == 1  # the second run is silent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (
            "never",
            [
                "gradients of step 1: rank 1 differs from rank 0 in 2 of 2",
                "the model is not wrapped",
                "the parameters are not averaged later, either (steps: 20)",
            ],
        ),
        (
            "in part",
            ["1 of 2 parameters are made equal later", "but never bias"],
        ),
    ],
)
def test_ranks_that_do_not_are_found(tmp_path, kind, sentences):
    status, text = check(tmp_path, kind, 30, ranks=2, script=SCRIPT)
    assert status == 1, text
    for sentence in sentences:
        assert sentence in text
