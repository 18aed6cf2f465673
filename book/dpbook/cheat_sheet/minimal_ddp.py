"""torchrun --standalone --nproc-per-node 2 minimal_ddp.py."""

import os

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    """Fit a linear function, as one process of several."""
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        # Without it, all processes would also use cuda:0.
        torch.cuda.set_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    rank = dist.get_rank()
    world_size = dist.get_world_size()

    torch.manual_seed(0)  # the same data and weights on all ranks
    X = torch.randn(64, 8).to(device)
    net = nn.Linear(8, 1).to(device)
    y = X.sum(1, keepdim=True)
    X = X[rank::world_size]  # parts of one size
    y = y[rank::world_size]

    parallel = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(50):
        optimizer.zero_grad()
        nn.functional.mse_loss(parallel(X), y).backward()
        optimizer.step()
    if rank == 0:
        away = (net.weight - 1).abs().max().item()
        print(f"weights away from 1 by {away:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
