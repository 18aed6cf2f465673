"""Run programs on ranks that are threads, or forked processes.

    python -m tests.runs.ranks_both_ways threads|forked 4 engines found.pt

The programs are "engines", "few engines", "pipelines" or "calls". The file
gets what each program leaves on each rank, and what it takes.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor

import dpkit
from dpkit.runs.forked.running import run_forked
from tests.runs import functional_calls_on_ranks, more_calls_on_ranks  # noqa: F401
from tests.runs import pipelines_on_ranks as pipelines
from tests.runs.calls_on_ranks import CALLS, Rank, call_in_groups
from tests.runs.engines_on_ranks import ENGINES

IN_GROUPS = ("reduce sum", "all_gather", "gather", "functional all_reduce")
FEW = ("ddp_views", "zero", "fsdp_hybrid", "tensor_parallel_loss")


def on_the_cpu(value):
    """Return what another process can read."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: on_the_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [on_the_cpu(item) for item in value]
    return value


def call(name):
    """Call an operation of the table; return what it leaves."""
    size = dist.get_world_size()
    return CALLS[name][0](Rank(dist.get_rank(), size, torch.device("sim")))


def programs(what, size):
    """Return each program by its name: a function and its arguments."""
    if what == "engines":
        return {name: (engine,) for name, engine in ENGINES.items()}
    if what == "few engines":
        return {name: (ENGINES[name],) for name in FEW}
    if what == "pipelines":
        return {n: (pipelines.pipeline, n) for n in pipelines.SCHEDULES}
    calls = {name: (call, name) for name, c in CALLS.items() if size >= c[2]}
    return calls | {
        f"{name}, in groups": (call_in_groups, name, "sim")
        for name in IN_GROUPS
    }


def program(function, *args):
    """Return what a program leaves, and the time on the clock after it."""
    torch.manual_seed(dist.get_rank())
    found = on_the_cpu(function(*args))
    return found, dpkit.sim.now()


def in_a_process(here, function, args):
    """Make the process group, as threads have it, and run the program."""
    dist.init_process_group("sim", init_method="env://")
    return program(function, *args)


def run(way, size, function, *args):
    """Return what a program leaves on all ranks, and the timeline."""
    with (
        dpkit.sim.machine(num_devices=size, hosts="per_device"),
        dpkit.sim.trace() as timeline,
    ):
        if way == "threads":
            found = dpkit.sim.launch(
                program, size, function, *args, algorithm="library"
            )
        else:
            found = run_forked(
                lambda here: in_a_process(here, function, args), size
            )
    return found, timeline.spans


def main(way, size, what, path):
    """Run all programs of a kind, and save what comes of them."""
    dpkit.sim.register()
    found = {
        name: run(way, int(size), *task)
        for name, task in programs(what, int(size)).items()
    }
    torch.save(found, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
