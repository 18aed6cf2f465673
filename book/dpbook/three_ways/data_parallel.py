"""torchrun --standalone --nproc-per-node 2 data_parallel.py START."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


def main() -> None:
    """Train on shards of each batch, as one process of several."""
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
    parallel = nn.parallel.DistributedDataParallel(net.to(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for X, y in start["batches"]:
        X, y = X[rank::world_size].to(device), y[rank::world_size].to(device)
        optimizer.zero_grad()
        F.cross_entropy(parallel(X), y).backward()
        optimizer.step()

    X, y = start["test"]
    with torch.no_grad():
        found = net(X[rank::world_size].to(device)).argmax(1)
    right = (found == y[rank::world_size].to(device)).sum()
    dist.all_reduce(right)
    if rank == 0:
        print(f"accuracy {right.item() / len(y):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
