"""What the interpreter of a schedule adds, and how fast one is replayed."""

import torch
from torch import nn

import dpkit
from bench_parts.ratios import Ratio, over
from bench_parts.rows import CPU_TIME, Row, by_cpu_time
from dpkit.schedules import one_f_one_b, times
from dpkit.schedules.check import check
from dpkit.schedules.replay import replay


def pipeline() -> Row:
    """A step of small stages on the CPU: what does the interpreter add?"""
    p = 4
    m = 8
    rows = 64
    stages = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(p)]
    X = torch.rand(m * rows, 256)
    loss = nn.MSELoss()
    pipelined = dpkit.Pipeline(stages, dpkit.devices(p, "cpu"), "1f1b", m)

    def directly() -> None:
        for part in X.tensor_split(m):
            y = part
            for stage in stages:
                y = stage(y)
            (loss(y, part) / m).backward()

    ways = {
        "stages called directly": directly,
        "Pipeline, 1F1B": lambda: pipelined.forward_backward(X, X, loss),
    }
    ratio = over("Pipeline, 1F1B", "stages called directly")
    return Row(
        "4 stages of 256 × 256, 8 micro-batches of 64",
        CPU_TIME,
        by_cpu_time(ways, count=10),
        [Ratio("a pipeline over its stages", ratio)],
    )


def replayed() -> Row:
    """A 1F1B step of 64 stages and 512 micro-batches, replayed."""
    p = 64
    m = 512
    durations = {"F": 1.0, "B": 2.0}
    schedule = one_f_one_b(p, m)
    ways = {
        "checked": lambda: check(schedule, p, m),
        "replayed, as numbers": lambda: times(schedule, durations),
        "replayed, as a timeline": lambda: replay(schedule, durations),
    }
    ratio = over("replayed, as numbers", "checked")
    return Row(
        f"1F1B, {p} stages, {m} micro-batches",
        CPU_TIME,
        by_cpu_time(ways),
        [Ratio("replay over its check", ratio, at_most=1)],
    )
