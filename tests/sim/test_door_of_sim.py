"""The door of simulated devices: what a stranger's program needs."""

import inspect

import pytest

import dpkit

CONSTANTS = {"ACCELERATORS", "HOSTS", "LINKS"}
# What they do is shown where they are made: by a cluster, by a trace.
MADE_BY_OTHERS = {"Cluster", "Timeline", "Host"}
SHOWN = sorted({*dpkit.sim.__all__} - CONSTANTS - MADE_BY_OTHERS)

# The rooms that simulated devices and ranks stand on.
UNDER = {
    "accelerator",
    "arguments",
    "collectives",
    "lazy",
    "least_squares",  # of the plans
    "library",
    "machine",
    "plan_runner",
    "plans",
    "processes",  # its Ctrl-C, which waits until imports are done
    "runs",
    "runs.cuda_names",
    "runs.ranks",
    "sim",
    "streams",
    "tables",
    "units",
}
PROGRAM = """
import sys
import dpkit.sim
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def step():
    net = DistributedDataParallel(torch.nn.Linear(3, 1, device="sim"))
    net(torch.ones(2, 3, device="sim")).sum().backward()
    return next(net.parameters()).grad.tolist()


machine = dpkit.sim.machine(num_devices=2, hosts="per_device")
with machine, dpkit.sim.trace() as timeline:
    print(dpkit.sim.launch(step, 2))
assert timeline.spans
names = [name.split(".")[1:] for name in sys.modules if name[:6] == "dpkit."]
print({".".join(name[: 2 if name[0] == "runs" else 1]) for name in names})
"""


@pytest.mark.parametrize("name", SHOWN)
def test_each_name_has_an_example(name):
    assert ">>> " in inspect.getdoc(getattr(dpkit.sim, name))


def test_devices_and_ranks_need_only_what_lies_under_them(run_new):
    gradients, names = run_new(PROGRAM).splitlines()
    assert gradients == "[[[2.0, 2.0, 2.0]], [[2.0, 2.0, 2.0]]]"
    assert eval(names) <= UNDER
