"""PyTorch's pipelines on ranks: all schedules that it has."""

from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

from tests.runs.engines_on_ranks import (
    STEPS,
    descent,
    loss_of,
    own_device,
    train,
    transformer,
    whole,
    words,
)

# Name -> schedule, of all that this version of PyTorch offers.
SCHEDULES = {
    name.removeprefix("Schedule"): getattr(pipelining, name)
    for name in pipelining.__all__
    if name.startswith("Schedule")
}
ONE_STAGE = {"GPipe", "1F1B"}  # on each rank; on the others' ranks two
V_SHAPED = {"ZBVZeroBubble", "DualPipeV"}


def stages_of(rank, k, schedule):
    """Return the numbers of a rank's stages, and of how many.

    Two ranks with four stages: 0, 2 | 1, 3, or as a V: 0, 3 | 1, 2.
    """
    if schedule in ONE_STAGE:
        return [rank], k
    second = 2 * k - 1 - rank if schedule in V_SHAPED else rank + k
    return [rank, second], 2 * k


def num_races(schedule):
    """Return how many races PyTorch itself has on two ranks.

    In torch 2.11 a stage first receives a number from each neighbour, both in
    one tensor, whose value nobody reads. In a V one neighbour is on the same
    rank, so the two messages take different streams.
    """
    has_both = hasattr(pipelining.PipelineStage, "_get_init_p2p_neighbors_ops")
    return 2 if has_both and schedule in V_SHAPED else 0


def parts(k, num_stages):
    """Cut the layers into stages; a layer keeps its number in its name."""
    layers = list(transformer(2 * k - 3).named_children())
    bounds = torch.arange(len(layers)).tensor_split(num_stages)
    return [
        nn.Sequential(OrderedDict(layers[i] for i in part.tolist()))
        for part in bounds
    ]


def batch_of(k):
    return words(batch=2 * k)


def pipeline(name):
    """Train for three steps; return the parameters of the rank's stages."""
    k, device = dist.get_world_size(), own_device()
    numbers, num_stages = stages_of(dist.get_rank(), k, name)
    cut = parts(k, num_stages)
    stages = [
        pipelining.PipelineStage(cut[i].to(device), i, num_stages, device)
        for i in numbers
    ]
    own = nn.ModuleList(stage.submod for stage in stages)
    schedule = SCHEDULES[name](
        stages[0] if len(stages) == 1 else stages, 2 * k, loss_fn=loss_of
    )
    x, y = (t.to(device) for t in batch_of(k))
    optimizer = descent(own)
    for _ in range(STEPS):
        optimizer.zero_grad()
        given = [x] if 0 in numbers else []
        last = {"target": y} if num_stages - 1 in numbers else {}
        schedule.step(*given, **last)
        optimizer.step()
    return {n.partition(".")[2]: p for n, p in whole(own).items()}


def on_one_device(k):
    return whole(train(transformer(2 * k - 3), *batch_of(k)))
