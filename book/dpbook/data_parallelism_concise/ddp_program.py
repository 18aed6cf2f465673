"""torchrun --standalone --nproc-per-node 2 ddp_program.py PARAMETERS."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dpbook.common.datasets import load_fashion_mnist


def main() -> None:
    """Train as one process of several, with its own device."""
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        # Without it, all processes would also use cuda:0.
        torch.cuda.set_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    torch.manual_seed(0)
    layers = nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10)
    net = nn.Sequential(nn.Flatten(), *layers).double().to(device)
    parallel = nn.parallel.DistributedDataParallel(net)
    train_set, (images, labels) = load_fashion_mnist()
    data = TensorDataset(*train_set)
    sampler: DistributedSampler[int] = DistributedSampler(data)
    batches = DataLoader(data, 200 // sampler.num_replicas, sampler=sampler)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)  # each epoch in another order
        for X, y in batches:
            optimizer.zero_grad()
            scores = parallel(X.double().to(device))
            nn.functional.cross_entropy(scores, y.to(device)).backward()
            optimizer.step()
    rows = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        found = net(images[rows].double().to(device)).argmax(dim=1)
    right = (found == labels[rows].to(device)).sum()
    dist.all_reduce(right)
    if dist.get_rank() == 0:
        print(f"accuracy {right.item() / len(labels):.4f}")
        torch.save(net.state_dict(), sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
