"""What ranks cost: threads with simulated devices, and real processes."""

import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from gpu_report_parts.two_ranks import step_seconds
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dpkit
from bench_parts.ratios import Ratio, over
from bench_parts.rows import CPU_TIME, Row, by_cpu_time, wall
from dpkit.data_parallel import BucketedDataParallel


def processes() -> Row:
    """A step of ResNet-18 on 2 processes, by hand and by PyTorch."""
    rows = 16
    steps = 3
    seconds, _ = dpkit.launch(
        step_seconds, 2, rows, steps, backend="gloo", timeout_seconds=600
    )
    title = f"ResNet-18, 2 gloo processes, {rows} images of 28 × 28 each"
    return Row(title, wall(), seconds)


def small_allreduces() -> Row:
    """Small allreduces on 4 simulated devices: by hand, and by ranks."""
    devices = dpkit.devices(4, "sim")
    tensors = [torch.ones(1000, device=device) for device in devices]
    num_calls = 50

    def by_hand() -> None:
        for _ in range(num_calls):
            dpkit.allreduce(tensors, "sum", "ring")

    def on_rank(x: list[torch.Tensor], calls: int) -> None:
        for _ in range(calls):
            dist.all_reduce(x[dist.get_rank()])

    def by_ranks(
        algorithm: str, calls: int = num_calls
    ) -> Callable[[], object]:
        return lambda: dpkit.sim.launch(
            on_rank, 4, tensors, calls, algorithm=algorithm
        )

    ways = {
        "by hand, a ring": by_hand,
        "4 ranks, a ring": by_ranks("ring"),
        "4 ranks, a library's": by_ranks("library"),
        "4 ranks that send nothing": by_ranks("ring", calls=0),
    }
    with dpkit.sim.machine(hosts="per_device"):
        seconds = by_cpu_time(ways)
    title = f"{num_calls} allreduces of 1000 floats, 4 simulated"
    return Row(title, CPU_TIME, seconds)


def steps() -> Row:
    """Steps of data parallelism: in one process, and by PyTorch on ranks."""
    devices = dpkit.devices(4, "sim")
    num_steps = 10
    rows = 32
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    X = torch.rand(4 * rows, 256)
    loss = nn.MSELoss()

    # Each way begins with the network on the CPU, and with nothing left on
    # the devices. Else a launch would look for garbage there first, which
    # takes 0.1 s or more.
    def in_process() -> None:
        parallel = BucketedDataParallel(net, devices)
        for _ in range(num_steps):
            parallel.forward_backward(X, X, loss)

    def on_rank(model: nn.Module, batch: torch.Tensor) -> None:
        part = batch.chunk(4)[dist.get_rank()].to("sim")
        replica = DistributedDataParallel(model.to("sim"))
        for _ in range(num_steps):
            loss(replica(part), part).backward()

    def by_ranks(algorithm: str) -> Callable[[], object]:
        return lambda: dpkit.sim.launch(
            on_rank, 4, net, X, algorithm=algorithm
        )

    ways = {
        "one process, buckets": in_process,
        "4 ranks, DDP, a ring": by_ranks("ring"),
        "4 ranks, DDP, library's": by_ranks("library"),
    }
    with dpkit.sim.machine(hosts="per_device"):
        seconds = by_cpu_time(ways, prepare=gc.collect)
    ratio = over("4 ranks, DDP, a ring", "one process, buckets")
    return Row(
        f"{num_steps} steps of 12 layers, 4 simulated devices",
        CPU_TIME,
        seconds,
        [Ratio("ranks over one process by hand", ratio, at_most=1.3)],
    )
