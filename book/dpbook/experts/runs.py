"""A layer of eight experts on simulated devices, on the clock alone.

Its sizes are those of a layer of Mixtral 8x7B, and each device has 8,192
tokens, of which each goes to two experts.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.passes import OfRank, Passes, both_passes, timed_passes
from dpkit.experts import Routing, expert_parallel

WIDTH, INNER, NUM_EXPERTS, TOP, NUM_TOKENS = 4096, 14336, 8, 2, 8192


class Expert(nn.Module):
    """Two dense layers, of which the first has a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, width) of (n, width)."""
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


def counts_by_expert(
    share: float = 1 / NUM_EXPERTS, capacity_factor: float | None = None
) -> list[int]:
    """Return how many tokens of a device go to each expert.

    Args:
        share: The part of a device's 2 · 8,192 choices that expert 0 gets;
            the others get equal parts of the rest.
        capacity_factor: An expert takes this many times an equal part of the
            choices of each device; None: all.
    """
    choices = TOP * NUM_TOKENS
    busy = round(share * choices)
    rest, others = choices - busy, NUM_EXPERTS - 1
    counts = [busy]
    counts += [(rest + i) // others for i in range(others)]
    if capacity_factor is not None:
        room = round(capacity_factor * choices / NUM_EXPERTS)
        counts = [min(count, room) for count in counts]
    return counts


def layer_run(counts: list[int], k: int = 4, **machine: Any) -> Passes:
    """Run forward and backward of the layer in bfloat16.

    The router is left out: its scores are given.

    Args:
        counts: How many tokens of each device go to each expert.
        k: How many devices share the experts.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    settings = {"accelerator": "h100", "link": "nvlink4", **machine}
    return timed_passes(k, partial(_on_rank, counts, k), **settings)


def _on_rank(counts: list[int], k: int) -> OfRank:
    """Run both passes of a rank, which has its part of the experts."""
    device = torch.device("sim", dist.get_rank())
    with torch.device("meta"):
        experts = [Expert().bfloat16() for _ in range(NUM_EXPERTS // k)]
    for expert in experts:
        expert.to_empty(device=device)
    x = torch.zeros(
        NUM_TOKENS, WIDTH, dtype=torch.bfloat16, device=device
    ).requires_grad_()
    routing = _routing(counts, device)
    forward = partial(expert_parallel, x, routing, experts)
    return both_passes(forward, torch.zeros_like(x))


def _routing(counts: list[int], device: torch.device) -> Routing:
    """Return a routing with given counts; which tokens go is left open."""
    num_kept = sum(counts)
    numbers = torch.tensor(counts, device=device)
    return Routing(
        token=torch.zeros(num_kept, dtype=torch.int64, device=device),
        weight=torch.ones(num_kept, device=device),
        counts=numbers,
        chosen=numbers,
    )


def forward_parts(run: Passes, rank: int) -> dict[str, float]:
    """Return what forward of a rank consists of, in seconds.

    Products of matrices; other kernels; and waiting: for messages, and for
    ranks that have more to compute.
    """
    seconds = {"products": 0.0, "other kernels": 0.0}
    for span in run.forward_spans():
        if span.device == f"sim:{rank}" and span.stream == "compute":
            kind = "products" if span.name == "mm" else "other kernels"
            seconds[kind] += span.end - span.start
    waiting = run.forward[rank] - sum(seconds.values())
    return {**seconds, "waiting": waiting}
