"""The checks of the exercises on sending while computing."""

import torch
from torch import nn

from dpbook.exercises.verdict import Answer, require
from dpkit import devices
from dpkit.data_parallel import BucketedDataParallel
from dpkit.traffic import sent


def check_accumulated_step(answer: Answer) -> None:
    """The gradient of all batches, for the messages of one step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    loss = nn.MSELoss()
    X, y = torch.rand(4, 9, 5).double(), torch.rand(4, 9, 3).double()
    batches = list(zip(X, y))
    alone = BucketedDataParallel(net, devices(3, "sim"))
    once, _ = sent(alone.forward_backward, *batches[0], loss)
    parallel = BucketedDataParallel(net, devices(3, "sim"))
    messages, _ = sent(answer, parallel, loss, batches)
    for X_batch, y_batch in batches:
        (loss(net(X_batch), y_batch) / len(batches)).backward()
    for rank, replica in enumerate(parallel.replicas):
        for p, q in zip(replica.parameters(), net.parameters()):
            require(p.grad is not None, f"replica {rank} has no gradient")
            assert p.grad is not None
            assert q.grad is not None
            away = float((p.grad.cpu() - q.grad).abs().max())
            why = f"{away:.0e} away from the mean over all batches"
            require(away < 1e-12, f"a gradient of replica {rank} is {why}")
    # Shards come from the CPU, which is no message; a loss may be gathered.
    allowed = once + (len(batches) - 1) * 2
    why = f"it sent {messages} messages, where {allowed} do"
    hint = "only the last batch needs an allreduce"
    require(messages <= allowed, f"{why}: {hint}")
