"""Tests of dpkit.runs.cuda_names: what programs for GPUs see of devices."""

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
from dpkit.runs.cuda_names import cuda_module, functions, not_modelled
from dpkit.runs.cuda_names.tensor_types import TENSOR_DTYPES
from tests.repository import ROOT
from tests.runs.programs_for_gpus import PROGRAMS

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
    "data_parallel": ["HERE"] * 4
    + ["CUDA error: invalid device ordinal"[:33]] * 2,
    "sharded": ["HERE"] * 3,
    "meshes": ["cuda", "cuda", "HERE", "HERE", "HERE"],
    "files": ["HERE", "HERE", "HERE", "cuda:1"],
}


@pytest.fixture(scope="module")
def found_on_ranks(tmp_path_factory):
    """Run the program of ``cuda_on_ranks``, where it can be forked."""
    module = "tests.runs.cuda_on_ranks"
    folder = str(tmp_path_factory.mktemp("ranks"))
    words = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, folder],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=1200,
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


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (torch, functions.FACTORIES),
        (torch.fft, functions.OF_FFT),
        (torch.ones(1), functions.METHODS),
    ],
)
def test_all_that_makes_tensors_reads_the_device(owner, names):
    with sim.as_cuda():
        for name in names:
            with pytest.raises(RuntimeError, match=r"ordinal .*: cuda:99"):
                getattr(owner, name)(device="cuda:99")


def test_each_type_of_tensors():
    with sim.as_cuda():
        for name, dtype in TENSOR_DTYPES.items():
            x = getattr(torch.cuda, name)(2)
            assert (x.dtype, x.type()) == (dtype, f"torch.cuda.{name}")


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (torch.accelerator, functions.ACCELERATOR_FUNCTIONS),
        (torch.cuda, [*cuda_module.OF_DEVICE, "get_device_properties"]),
    ],
)
def test_all_that_takes_a_device_refuses_one_that_is_not_there(owner, names):
    others = {"can_device_access_peer": (0,)}
    with sim.as_cuda():
        for name in names:
            with pytest.raises(RuntimeError, match=r"ordinal .*: cuda:99"):
                getattr(owner, name)(99, *others.get(name, ()))


def test_what_a_module_defines_is_replaced_there_too():
    with sim.as_cuda():
        for module in cuda_module.DEFINING:
            for name in vars(module).keys() & cuda_module.FUNCTIONS:
                assert vars(module)[name] is vars(torch.cuda)[name], name


def test_all_that_is_refused_is_named():
    with sim.as_cuda():
        for name in not_modelled.OF_CUDA:
            with pytest.raises(NotImplementedError, match=rf"cuda\.{name} is"):
                getattr(torch.cuda, name)()
        for name in not_modelled.OF_NCCL:
            with pytest.raises(NotImplementedError, match=rf"nccl\.{name} is"):
                getattr(torch.cuda.nccl, name)()


@pytest.mark.parametrize("name", ["mpi", "UCC", "cpu:gloo,cuda:xccl"])
def test_backends_that_pytorch_for_gpus_lacks_are_refused(name):
    def make():
        with pytest.raises(RuntimeError, match="package doesn't have"):
            dist.new_group(backend=name)

    with sim.machine(num_devices=2, hosts="per_device"), sim.as_cuda():
        sim.launch(make, 2)


def test_options_of_nccl_on_a_torch_without_cuda(monkeypatch):
    for owner in (dist, dist.distributed_c10d):
        monkeypatch.delattr(owner, "ProcessGroupNCCL", raising=False)

    def total():
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        assert options.is_high_priority_stream
        group = dist.new_group(backend="nccl", pg_options=options)
        x = torch.ones(1, device="cuda")
        dist.all_reduce(x, group=group)
        return x.item()

    with sim.machine(num_devices=2, hosts="per_device"), sim.as_cuda():
        assert sim.launch(total, 2) == [2, 2]
    assert not hasattr(dist, "ProcessGroupNCCL")
