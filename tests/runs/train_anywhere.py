"""One function that ranks run, however they are started."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dpkit.processes import rank_device
from tests.runs.engines_on_ranks import (
    descent,
    loss_of,
    transformer,
    whole,
    words,
)


def train(rank, device):
    """Train by PyTorch's DDP; return name -> parameter."""
    model = DistributedDataParallel(transformer().to(device))
    optimizer = descent(model)
    x, y = (t.chunk(dist.get_world_size())[rank].to(device) for t in words())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    return whole(model)


def on_sim():
    return train(dist.get_rank(), torch.device("sim", dist.get_rank()))


def in_a_process():
    return train(dist.get_rank(), rank_device())


def main():
    """Do so under torchrun; rank 0 saves what comes out."""
    dist.init_process_group("gloo")
    found = train(dist.get_rank(), torch.device("cpu"))
    if dist.get_rank() == 0:
        torch.save(found, sys.argv[1])
    dist.destroy_process_group()
