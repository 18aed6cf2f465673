"""What ranks do with NCCL; torchrun starts it. Rank 0 prints JSON, last."""

import json
import os
from typing import Any

import torch
import torch.distributed as dist
from cuda_double.findings import findings
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 5)
    )


def batch() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(4, 1, 12, 12)


def gradients_of(net: nn.Module, X: torch.Tensor) -> list[torch.Tensor]:
    net(X).square().mean().backward()
    return [p.grad.cpu() for p in net.parameters()]


def ddp_with_synchronized_batch_norm(rank: int, size: int) -> bool:
    """Each rank has its part of the batch; one device has all of it."""
    expected = gradients_of(network(), batch())
    net = nn.SyncBatchNorm.convert_sync_batchnorm(network()).cuda()
    ddp = DistributedDataParallel(net, device_ids=[rank])
    found = gradients_of(ddp, batch().chunk(size)[rank].cuda())
    return all(
        torch.allclose(a, b, atol=1e-4) for a, b in zip(expected, found)
    )


def trained(net: nn.Module, x: torch.Tensor) -> list[Any]:
    """Do two steps: the second one frees the gradients of the first."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return list(net.parameters())


def fsdp(rank: int, size: int) -> bool:
    torch.manual_seed(3)
    whole = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    x = torch.randn(3, 8)
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    fully_shard(net[0])
    fully_shard(net)
    expected = trained(whole, x)
    found = [p.full_tensor().cpu() for p in trained(net, x.cuda())]
    return all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(expected, found)
    )


def collectives(rank: int, size: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    mine = torch.arange(4.0, device="cuda") + 10 * rank
    for op in ("SUM", "PRODUCT", "MAX", "MIN", "AVG"):
        x = mine.clone()
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        told[op] = x.tolist()
    x = mine.clone()
    dist.broadcast(x, 1)
    told["broadcast"] = x.tolist()
    many = torch.empty(4 * size, device="cuda")
    dist.all_gather_into_tensor(many, mine)
    told["all_gather"] = many.tolist()
    half = torch.empty(4 // size, device="cuda")
    dist.reduce_scatter_tensor(half, mine)
    told["reduce_scatter"] = half.tolist()
    dist.all_to_all_single(x, mine)
    told["all_to_all"] = x.tolist()
    bf16 = mine.bfloat16()
    dist.all_reduce(bf16)
    told["bfloat16"] = bf16.tolist()
    return told


def messages(rank: int, size: int) -> dict[str, Any]:
    x = torch.full((3,), float(rank), device="cuda")
    y = torch.empty(3, device="cuda")
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x, (rank + 1) % size),
            dist.P2POp(dist.irecv, y, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    sent = [{"from": 1}]
    if rank == 1:
        dist.send_object_list(sent, 0)
    if rank == 0:
        sent = [None]
        dist.recv_object_list(sent, 1)
    return {"round": y.tolist(), "all": objects, "sent": sent}


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    told = {
        part.__name__: part(rank, size)
        for part in (
            ddp_with_synchronized_batch_norm,
            fsdp,
            collectives,
            messages,
        )
    }
    told["findings"] = findings()
    x = torch.ones(1000, device="cuda")
    work = dist.all_reduce(x, async_op=True)
    y = x * 2  # nobody has waited
    work.wait()
    told["without a wait"] = findings()
    dist.destroy_process_group()
    if rank == 0:
        del y
        print(json.dumps(told))


if __name__ == "__main__":
    main()
