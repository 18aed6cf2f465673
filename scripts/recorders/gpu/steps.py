"""Where the time of a training step goes: on the host, and on the GPU."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from dpbook.limits.gpu_steps import CASES, batch, precision
from dpkit.calibration import CASES as SMALL

PARTS = ("zero_grad", "forward", "loss", "backward", "update", "wait")
WARM_UP, TIMED, PROFILED = 5, 10, 3
# The operators that are recorded take this share of all at least, on the
# GPU or on the host.
LEAST_SHARE = 0.005


@dataclass(frozen=True)
class Training:
    """A model with its batch."""

    name: str
    model: nn.Module
    X: Tensor
    y: Tensor
    optimizer: torch.optim.Optimizer
    cast: Callable[[], AbstractContextManager[object]]

    def step(self, tick: Callable[[], object] = lambda: None) -> None:
        """Train a step; ``tick`` is called after each part."""
        self.optimizer.zero_grad()
        tick()
        with self.cast():
            scores = self.model(self.X)
            tick()
            loss = F.cross_entropy(scores.flatten(0, -2), self.y.flatten())
        tick()
        loss.backward()
        tick()
        self.optimizer.step()
        tick()
        torch.cuda.synchronize()
        tick()


def trainings(device: torch.device) -> Iterator[Training]:
    """Make one training after the other: small ones, then whole models."""
    for small in SMALL:
        size = small.batch_sizes[1]
        X = torch.rand(size, *small.shape, device=device)
        y = torch.zeros(size, dtype=torch.long, device=device)
        model = small.make().to(device)
        sgd = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
        yield Training(f"{small.name} {size}", model, X, y, sgd, nullcontext)
    for case in CASES:
        X, y = batch(case, device)
        name = f"{case.name} {case.batch_size} "
        name += "bfloat16" if case.bfloat16 else "float32"
        images = X.dim() == 4
        for layout in ("", " channels_last") if images else ("",):
            with device:
                model = case.make()
            if layout:
                model = model.to(memory_format=torch.channels_last)
                X = X.to(memory_format=torch.channels_last)
            adam = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
            cast = partial(precision, case, device)
            yield Training(name + layout, model, X, y, adam, cast)


def parts_of(training: Training) -> dict[str, Any]:
    """Return the seconds that the host takes for each part of a step.

    It issues what the GPU is to do, and waits at the end.
    """
    rows = []
    for _ in range(WARM_UP + TIMED):
        torch.cuda.synchronize()
        times = [time.perf_counter()]
        training.step(lambda: times.append(time.perf_counter()))  # noqa: B023
        rows.append([b - a for a, b in pairwise(times)])
    medians = map(median, zip(*rows[WARM_UP:]))
    return {"step": training.name} | {
        f"{part}_seconds": seconds for part, seconds in zip(PARTS, medians)
    }


def operators_of(training: Training) -> list[dict[str, Any]]:
    """Return what operators take of a step, by the profiler.

    ``seconds`` are the GPU's. ``host_seconds`` are the host's without those
    of operators inside, and the profiler adds to them.
    """
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both) as profiled:
        for _ in range(PROFILED):
            training.step()
    rows = [
        {
            "step": training.name,
            "operator": event.key.removeprefix("aten::"),
            "count": event.count / PROFILED,
            "seconds": event.self_device_time_total / PROFILED / 1e6,
            "host_seconds": event.self_cpu_time_total / PROFILED / 1e6,
        }
        for event in profiled.key_averages()
        if event.key.startswith("aten::")
    ]
    least = {
        kind: LEAST_SHARE * sum(row[kind] for row in rows)
        for kind in ("seconds", "host_seconds")
    }
    found = [
        row for row in rows if any(row[kind] > least[kind] for kind in least)
    ]
    return sorted(found, key=lambda row: -row["seconds"])
