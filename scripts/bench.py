"""Measure speed, as ratios of things timed side by side in one run.

Usage: python scripts/bench.py

Each line gives the least, the median and the largest of several repetitions,
and the ratio of the medians.
"""

import sys
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from gpu_report_parts.two_ranks import step_seconds
from in_turns import report, time_in_turns
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.data_parallel import BucketedDataParallel
from dpkit.lab.common.batches import Batches
from dpkit.lab.common.models import lenet, lenet_params
from dpkit.theory.pipelines.check import check
from dpkit.theory.pipelines.replay import replay, times
from dpkit.theory.pipelines.schedules import one_f_one_b


def bench_operation() -> None:
    """An elementwise operation: what does the simulation add?"""
    x = torch.ones(64, 64)
    on_sim = x.to(dpkit.devices(1, "sim")[0])
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    seconds = time_in_turns(
        {
            "plain CPU": lambda: x + x,
            "simulated device": lambda: on_sim + on_sim,
            "FakeTensorMode": lambda: fake + fake,
        },
        count=2000,
    )
    report("x + x, 64 × 64, with clock and memory", seconds)
    plain, simulated, faked = map(median, seconds.values())
    share = (simulated - plain) / (faked - plain)
    print(f"  the simulation adds {share:.2f} of what FakeTensorMode adds")


def bench_step() -> None:
    """A step of LeNet: kinds and numbers of devices."""
    X, y = torch.rand(256, 1, 28, 28), torch.arange(256) % 10
    loss = nn.CrossEntropyLoss(reduction="none")

    def step_on(count: int, kind: str) -> Callable[[], None]:
        devices = dpkit.devices(count, kind)
        params = dpkit.replicate(lenet_params(), devices)
        return lambda: dpkit.train_batch(
            lenet, loss, X, y, params, devices, lr=0.01
        )

    seconds = time_in_turns(
        {
            "1 × cpu": step_on(1, "cpu"),
            "1 simulated": step_on(1, "sim"),
            "2 × cpu": step_on(2, "cpu"),
            "2 simulated": step_on(2, "sim"),
        },
        count=10,
    )
    report("train_batch, LeNet, batch of 256", seconds)


def bench_reading() -> None:
    """A pass over 10,000 images in batches of 256, by index."""
    images, labels = torch.rand(10_000, 1, 28, 28), torch.arange(10_000)
    batches = Batches(images, labels, 256, shuffle=True)
    seconds = time_in_turns(
        {
            "one copy": images.clone,
            "Batches": lambda: sum(len(y) for _, y in batches),
        },
        count=5,
    )
    report("read 10,000 images once", seconds)


def bench_pipeline() -> None:
    """A step of small stages on the CPU: what does the interpreter add?"""
    p, m, rows = 4, 8, 64
    stages = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(p)]
    X, loss = torch.rand(m * rows, 256), nn.MSELoss()
    pipeline = dpkit.Pipeline(stages, dpkit.devices(p, "cpu"), "1f1b", m)

    def directly() -> None:
        for part in X.tensor_split(m):
            y = part
            for stage in stages:
                y = stage(y)
            (loss(y, part) / m).backward()

    seconds = time_in_turns(
        {
            "stages called directly": directly,
            "Pipeline, 1F1B": lambda: pipeline.forward_backward(X, X, loss),
        },
        count=10,
    )
    report("4 stages of 256 × 256, 8 micro-batches of 64", seconds)
    direct, piped = map(median, seconds.values())
    each = 1e6 * (piped - direct) / (2 * p * m)
    print(f"  the interpreter adds {each:.1f} µs to each action")


def bench_replay() -> None:
    """A 1F1B step of 64 stages and 512 micro-batches, replayed."""
    p, m, durations = 64, 512, {"F": 1.0, "B": 2.0}
    schedule = one_f_one_b(p, m)
    seconds = time_in_turns(
        {
            "checked": lambda: check(schedule, p, m),
            "replayed, as numbers": lambda: times(schedule, durations),
            "replayed, as a timeline": lambda: replay(schedule, durations),
        },
        count=1,
    )
    report(f"1F1B, {p} stages, {m} micro-batches", seconds)
    rate = 2 * p * m / median(seconds["replayed, as numbers"])
    print(f"  {rate:,.0f} actions a second")


def bench_allreduce() -> None:
    """64 MB on each of 4 CPU devices, against what copying would take."""
    tensors = [torch.ones(16 * 2**20).zero_() for _ in range(4)]
    one, other = tensors[:2]

    def by(algorithm: str) -> Callable[[], None]:
        return lambda: dpkit.allreduce(tensors, "sum", algorithm)

    contestants: dict[str, Callable[[], object]] = {
        "a copy of 64 MB": lambda: one.copy_(other)
    }
    names = ("star", "tree", "ring", "halving_doubling")
    contestants |= {name: by(name) for name in names}
    seconds = time_in_turns(contestants, count=2)
    report("allreduce of 64 MB on 4 CPU devices in one process", seconds)
    # Each buffer has to be read once and written once, as a copy does.
    bound = len(tensors) * median(seconds["a copy of 64 MB"])
    for name in names:
        share = bound / median(seconds[name])
        print(f"  {name} reaches {share:.2f} of the speed of 4 copies")


def bench_ddp() -> None:
    """A step of ResNet-18 on 2 processes, by hand and by PyTorch."""
    rows, steps = 16, 3
    seconds, _ = dpkit.launch(
        step_seconds, 2, rows, steps, backend="gloo", timeout_seconds=600
    )
    title = f"ResNet-18, 2 gloo processes, {rows} images of 28 × 28 each"
    report(title, seconds)


def bench_ranks() -> None:
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
        seconds = time_in_turns(ways)
    report(f"{num_calls} allreduces of 1000 floats, 4 simulated", seconds)


def bench_step_of_ranks() -> None:
    """A step of data parallelism: in one process, and by PyTorch on ranks."""
    devices, num_steps, rows = dpkit.devices(4, "sim"), 10, 32
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    X, loss = torch.rand(4 * rows, 256), nn.MSELoss()
    parallel = BucketedDataParallel(net, devices)

    def in_process() -> None:
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
        seconds = time_in_turns(ways)
    report(f"{num_steps} steps of 12 layers, 4 simulated devices", seconds)


BENCHES = (
    bench_operation,
    bench_step,
    bench_reading,
    bench_pipeline,
    bench_replay,
    bench_allreduce,
    bench_ddp,
    bench_ranks,
    bench_step_of_ranks,
)


def main() -> int:
    """Run all benchmarks."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("  least, median, largest of 7, and the ratio to the first line")
    for bench in BENCHES:
        bench()
    return 0


if __name__ == "__main__":
    sys.exit(main())
