"""The checks of the exercises on sending while computing."""

import torch
from torch import nn

from dpkit.buckets import assign
from dpkit.data_parallel import BucketedDataParallel
from dpkit.lab.common.traffic import sent
from dpkit.lab.common.verdict import Answer, require, require_reference
from dpkit.machine import devices
from dpkit.theory.overlap import bucket_ends


def check_ends_of_buckets(answer: Answer) -> None:
    """Where gradients are late, where the network is, and both in turn."""
    cases = [
        ([1.0, 2.0, 9.0], [0.5, 0.5, 0.5]),
        ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]),
        ([2.0, 4.0, 20.0, 21.0], [3.0, 5.0, 7.0, 0.5]),
        ([], []),
    ]
    require_reference(answer, bucket_ends, cases, "ready at {0}, costs {1}")


def check_fill_buckets(answer: Answer) -> None:
    """From the last to the first; none too full unless it holds one."""

    def from_the_last(sizes: list[int], room: int) -> list[list[int]]:
        tensors = [torch.empty(n, dtype=torch.int8) for n in reversed(sizes)]
        last = len(sizes) - 1
        return [[last - i for i in group] for group in assign(tensors, room)]

    cases = [
        ([4, 4, 4, 4], 8),
        ([3, 9, 2, 2, 5], 6),
        ([5], 3),
        ([1, 2, 3, 4, 5, 6], 100),
    ]
    require_reference(answer, from_the_last, cases, "sizes {0}, room for {1}")


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
            words = f"{away:.0e} away from the mean over all batches"
            require(away < 1e-12, f"a gradient of replica {rank} is {words}")
    # Shards come from the CPU, which is no message; a loss may be gathered.
    allowed = once + (len(batches) - 1) * 2
    words = f"it sent {messages} messages, where {allowed} do"
    hint = "only the last batch needs an allreduce"
    require(messages <= allowed, f"{words}: {hint}")


def check_server_seconds(answer: Answer) -> None:
    """One server, as many as workers, and more than workers."""

    def reference(p: int, s: int, n: float, a: float, b: float) -> float:
        return 2 * max(p, s) * (a + n / s * b)

    sizes = (4, 1), (4, 2), (4, 4), (2, 3), (8, 8)
    cases = [(p, s, 160e6, 1e-5, 1 / 16e9) for p, s in sizes]
    words = "{0} workers, {1} servers"
    require_reference(answer, reference, cases, words, ".5f", 1e-9)
