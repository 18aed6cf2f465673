"""Tests of dpkit.sim.cuda_names: what programs for GPUs see of devices."""

import builtins
import copy
import doctest
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dpkit import sim
from tests.dpkit.programs_for_gpus import PROGRAMS
from tests.repository import ROOT

sim.register()
MODULES = (copy, io, nn, pickle, torch)


def failures(name):
    """Run a program of ``programs_for_gpus``; return what is not as said."""
    known = {module.__name__.split(".")[-1]: module for module in MODULES}
    test = doctest.DocTestParser().get_doctest(
        PROGRAMS[name], {**known, "__name__": "__main__"}, name, None, 0
    )
    lines = []
    torch.cuda.set_device(0)
    gc.collect()  # what errors of the program before have held
    torch.cuda.reset_peak_memory_stats(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=lines.append
        )
    vars(builtins).pop("_", None)  # the last that was printed
    return "".join(lines)


@pytest.fixture(scope="module")
def on_nodes():
    """Run all programs on the first rank of two nodes, one after the other."""

    def run_all():
        found = {}
        for node in (0, 1):
            if dist.get_rank() == 2 * node:
                found = {name: failures(name) for name in PROGRAMS}
            dist.barrier()
        return found

    machine = sim.machine(
        num_devices=4, accelerator="h100", hosts="per_device", ranks_per_node=2
    )
    with machine, sim.as_cuda():
        first, _, second, _ = sim.launch(run_all, 4)
    return first, second


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_the_devices_of_its_node(on_nodes, name, node):
    assert on_nodes[node][name] == ""


# Of cuda_on_ranks, with HERE for the device of the rank.
ON_RANKS = {
    "groups": ["nccl", "nccl", True, "tensor([4.], device='HERE')", 4.0],
    "objects": ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:1"],
    "data_parallel": ["HERE"] * 4,
    "sharded": ["HERE"] * 3,
    "meshes": ["cuda", "cuda", "HERE", "HERE", "HERE"],
    "files": ["HERE", "HERE", "HERE", "cuda:1"],
}


@pytest.fixture(scope="module")
def found_on_ranks():
    """Run the program of ``cuda_on_ranks``, where it can be forked."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.dpkit.cuda_on_ranks",
    ]
    words = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    ).stdout
    return json.loads(words)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)
@pytest.mark.parametrize("name", ON_RANKS)
@pytest.mark.parametrize("rank", range(4))
def test_distributed_programs(found_on_ranks, name, rank):
    expected = json.dumps(ON_RANKS[name]).replace("HERE", f"cuda:{rank % 2}")
    assert found_on_ranks[rank][name] == json.loads(expected)
