"""torchrun --standalone --nproc-per-node 2 split_layers.py START."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F


def main() -> None:
    """Train a part of each layer, as one process of several."""
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(device))

    start = torch.load(sys.argv[1])
    layers = nn.Linear(784, 64, bias=False), nn.Linear(64, 10, bias=False)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1]).double()
    net.load_state_dict(start["weights"])
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    cuts = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(net.to(device), mesh, cuts)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for X, y in start["batches"]:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"last loss {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
