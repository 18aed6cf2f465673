"""Where the host decides, a report says what a step takes without it."""

import json
import re
from dataclasses import asdict, replace

import pytest

from dpkit.runs.torchrun import host_share
from dpkit.sim.clock.record import Span
from dpkit.sim.hardware import HOSTS
from tests.runs.running_scripts import run_script, section

SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
SMALL = """
import os
import torch
from torch import nn
import torch.distributed as dist
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
if dist.is_torchelastic_launched():
    dist.init_process_group("nccl")
size = WIDTH, WIDTH
net = nn.Sequential(*[nn.Linear(*size, device="cuda") for _ in range(4)])
if dist.is_initialized():
    net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters())
for step in range(3):
    x = torch.randn(size, device="cuda")
    net(x).mean().backward()
    optimizer.step()
"""


def span(kind, start, end, device="sim:0"):
    return Span(device, "compute", "mm", kind, start, end)


@pytest.mark.parametrize(
    ("host", "gpu", "waiting"),
    [
        ([(0, 2), (2, 4)], [(2, 3), (4, 5)], 3),  # 0 to 2, and 3 to 4
        ([(0, 2), (2, 4)], [(0, 9)], 0),  # it has enough to do
        ([(0, 2)], [(0, 1), (5, 9)], 1),  # from 2 to 5 it waits for others
        ([], [(0, 1)], 0),
    ],
)
def test_a_gpu_waits_where_it_is_idle_and_its_host_launches(
    host, gpu, waiting
):
    launches = [span("launch", *when, "host:0") for when in host]
    launches.append(span("wait", 0, 99, "host:0"))
    work = [span("compute", *when) for when in gpu]
    assert host_share.seconds_waiting(launches, work) == waiting


def edges(text):
    """Return the seconds of a step in a report, and those without launches."""
    lines = section(text, "A step of the optimizer")
    found = [re.search(r"([\d.]+) (µs|ms|s)\b", line) for line in lines]
    return [float(one[1]) * SECONDS[one[2]] for one in found if one]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given"),
    [("torchrun", ["--nproc-per-node", "2"]), ("run", ["--gpus", "2"])],
)
def test_a_small_network_has_two_edges(tmp_path, name, given):
    """The second is what a host takes that launches at once."""
    given = [*given, "--meta"]
    small = SMALL.replace("WIDTH", "256")
    step, without = edges(run_script(tmp_path, name, *given, script=small))
    parts = "launch_seconds", "backward_launch_seconds", "view_seconds"
    host = replace(HOSTS["eager"], **dict.fromkeys(parts, 1e-12))
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"host": asdict(host)}))
    given += ["--host", str(path)]
    (at_once,) = edges(run_script(tmp_path, name, *given, script=small))
    assert without == pytest.approx(at_once, rel=0.1)
    assert step > 2 * without


@pytest.mark.slow
def test_where_the_gpu_decides_there_is_one(tmp_path):
    large = SMALL.replace("WIDTH", "8192")
    text = run_script(tmp_path, "run", "--meta", script=large)
    assert len(edges(text)) == 1


@pytest.mark.slow
def test_the_host_of_a_script_is_that_of_a_program(tmp_path):
    text = run_script(
        tmp_path, "run", "--meta", script=SMALL.replace("WIDTH", "8")
    )
    assert "A launch takes 30 µs for an operation, 19 µs in backward" in text
