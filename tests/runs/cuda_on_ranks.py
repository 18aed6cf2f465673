"""What a program for GPUs does with torch.distributed, on two nodes of two.

Run as a module, with a folder for files, it prints what each rank has seen, as
JSON.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from dpkit import sim


def groups(local):
    """Return the backends, and what groups of them send."""
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    group = dist.new_group(backend="nccl", pg_options=options)
    x = torch.ones(1, device="cuda")
    y = torch.ones(1)
    dist.all_reduce(x, group=group)
    dist.all_reduce(y, group=dist.new_group(backend="gloo"))
    dist.barrier(device_ids=[local])
    kinds = dist.get_backend(), dist.get_default_backend_for_device("cuda")
    return [*kinds, dist.is_nccl_available(), str(x), y.item()]


def objects(local):
    """Return objects that other ranks have sent, and their devices."""
    found = [None] * 4
    dist.all_gather_object(found, torch.ones(1, device="cuda").device)
    sent = [torch.full((1,), 3.0, device="cuda")]
    device = torch.device("cuda", local)
    dist.broadcast_object_list(sent, 3, device=device)
    return [*map(str, found), str(sent[0].device)]


def data_parallel(local):
    """Return where DDP has the gradients, with devices by number and name."""
    found = []
    for ids in ([local], [torch.device("cuda", local)], None):
        net = nn.parallel.DistributedDataParallel(
            nn.Linear(2, 2).to(local), ids, output_device=ids and ids[0]
        )
        net(torch.ones(2, 2, device=local)).sum().backward()
        found.append(str(next(net.parameters()).grad.device))
    net = nn.parallel.DistributedDataParallel(
        nn.Linear(2, 2).to(local), device_ids=[local], output_device=local
    )
    found.append(str(net(torch.ones(2, 2)).device))
    for others in ({"device_ids": [2]}, {"output_device": 2}):
        try:
            nn.parallel.DistributedDataParallel(net, **others)
        except RuntimeError as error:
            found.append(str(error)[:33])
    return found


def sharded(local):
    """Return where FSDP has its parameters and gradients."""
    whole = nn.Linear(4, 4).cuda()
    fully_shard(whole)
    whole(torch.ones(2, 4, device="cuda")).sum().backward()
    weight = whole.weight
    flat = FullyShardedDataParallel(
        nn.Linear(4, 4), device_id=torch.cuda.current_device()
    )
    flat(torch.ones(2, 4, device="cuda")).sum().backward()
    (p,) = flat.parameters()
    return [*map(str, (weight.device, weight.grad.device, p.device))]


def meshes(local):
    """Return what a mesh, and a tensor on it, say of their device."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("a", "b"))
    x = distribute_tensor(torch.ones(4, 2).cuda(), mesh["a"], [Shard(0)])
    both = x + x
    net = nn.Linear(4, 4).cuda()
    fully_shard(net, mesh=mesh)
    net(torch.ones(2, 4).cuda()).sum().backward()
    devices = x.device, both.full_tensor().device, net.weight.grad.device
    return [mesh.device_type, mesh["b"].device_type, *map(str, devices)]


def files(local):
    """Return where tensors go that each rank has saved."""
    folder = sys.argv[1]
    path = Path(folder, f"of_rank_{dist.get_rank()}.pt")
    torch.save(torch.ones(1, device="cuda"), path)
    dist.barrier()
    first, last = (Path(folder, f"of_rank_{rank}.pt") for rank in (0, 3))
    here = {"cuda:0": f"cuda:{local}"}
    found = [
        *(torch.load(first, here), torch.load(last, f"cuda:{local}")),
        *(torch.load(last, lambda x, _: x.cuda(local)), torch.load(last)),
    ]
    return [str(x.device) for x in found]


CASES = [groups, objects, data_parallel, sharded, meshes, files]


def program(here):
    """Do all that, as the program of a rank."""
    local = here.rank % 2
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    torch.cuda.set_device(local)
    found = {case.__name__: case(local) for case in CASES}
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    from dpkit.runs.forked.running import run_forked

    sim.configure(num_devices=4, accelerator="h100", ranks_per_node=2)
    with sim.as_cuda():
        json.dump(run_forked(program, 4), sys.stdout)
