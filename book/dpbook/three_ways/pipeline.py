"""torchrun --standalone --nproc-per-node 2 pipeline.py START."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional as F


def main() -> None:
    """Train one stage of the network, as one process of two."""
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    rank, world_size = dist.get_rank(), dist.get_world_size()

    start = torch.load(sys.argv[1])
    layers = nn.Linear(784, 64, bias=False), nn.Linear(64, 10, bias=False)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1]).double()
    net.load_state_dict(start["weights"])
    part = (net[:2], net[2:])[rank].to(device)
    stage = PipelineStage(part, rank, world_size, device)
    schedule = ScheduleGPipe(stage, 4, loss_fn=F.cross_entropy)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.3)
    for X, y in start["batches"]:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(X.to(device))
        else:
            losses: list[torch.Tensor] = []
            schedule.step(target=y.to(device), losses=losses)
        optimizer.step()
    if rank == world_size - 1:
        print(f"last loss {torch.stack(losses).mean().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
