"""What NCCL refuses fails under ``torchrun``, and what it does goes on."""

import sys

import pytest

from tests.runs.running_scripts import looked_for, section, torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from datetime import timedelta

how = sys.argv[1]
two = timedelta(seconds=2)
if how == "no watchdog":
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
if how == "long message":
    dist.init_process_group("nccl", timeout=two)
elif how.startswith("both"):
    dist.init_process_group()
else:
    dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
one = torch.ones(1)
if not how.startswith("no device"):
    torch.cuda.set_device(rank)
if how in ("cpu", "both: cpu"):
    dist.all_reduce(one)
elif "monitored" in how:
    dist.monitored_barrier()
elif how == "int16":
    dist.broadcast(one.cuda().short(), 0)
elif how == "two GPUs":
    if rank == 1:
        dist.all_reduce(one.to("cuda:2"))
elif how == "gloo":
    dist.all_reduce(one, group=dist.new_group(backend="gloo"))
elif "objects" in how:
    dist.all_gather_object([None] * size, rank)
    dist.broadcast_object_list([rank])
elif how in ("long wait", "short wait", "no watchdog"):
    group = dist.new_group(timeout=two)
    if rank == 0:
        time.sleep(1 if how == "short wait" else 6)
    dist.barrier(group=group)
elif how == "long message":
    if rank == 0:
        time.sleep(3)
        dist.send(one.cuda(), 1)
    elif rank == 1:
        dist.recv(one.cuda(), 0)
elif how == "apart":
    group = dist.new_group([0, 1] if rank < 2 else [1, 2])
elif how == "members":
    if rank < 2:
        dist.all_reduce(one.cuda(), group=dist.new_group([0, 1]))
elif how == "all":
    pairs = [dist.new_group(pair) for pair in ([0, 1], [1, 2])]
    if rank < 2:
        dist.all_reduce(one.cuda(), group=pairs[0])
elif how == "alone":
    dist.all_reduce(one.cuda(), group=dist.new_group([rank]))
elif how == "own":
    if rank < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(one.cuda(), group=group)
elif how == "random":
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = dist.init_device_mesh("cuda", (size,))
    x = distribute_tensor(torch.zeros(6, device="cuda"), mesh, [Shard(0)])
    x.normal_()
    assert x.to_local().abs().sum() > 0
print(f"rank {rank} has done it")
"""


def run(tmp_path, how, status):
    ranks = "--nproc-per-node", "3"
    given = {"script": SCRIPT, "arguments": [how], "status": status}
    return torchrun(tmp_path, *ranks, **given)


def line_of(code):
    lines = SCRIPT.splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if code in line]
    return number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said", "code"),
    [
        (
            "cpu",
            "No backend type associated with device type cpu",
            "    dist.all_reduce(one)",
        ),
        (
            "monitored",
            "monitored_barrier requires a group with a CPU-capable backend",
            "dist.monitored_barrier()",
        ),
        (
            "int16",
            "Input tensor data type is not supported for NCCL process group "
            "(dtype: torch.int16)",
            "dist.broadcast(one",
        ),
        (
            "two GPUs",
            "not all on its device, nor on the CPU (devices: cuda:2, its own: "
            "cuda:1); a simulated rank has one GPU",
            "dist.all_reduce(one.to(",
        ),
        (
            "no device: objects",
            "another rank's (rank: 1, current device: cuda:0)",
            "all_gather_object",
        ),
        (
            "long wait",
            "waited for rank 0 longer than the group allows (barrier number "
            "0 of group 1, waited: 6 s, timeout: 2 s)",
            "dist.barrier",
        ),
        (
            "long message",
            "rank 1 has waited for rank 0 longer than the group allows",
            "dist.recv",
        ),
        (
            "apart",
            "[0, 1], script.py:45; rank 2: [1, 2], script.py:45)",
            "rank < 2 else [1, 2]",
        ),
    ],
)
def test_what_nccl_refuses_fails_with_the_line(tmp_path, how, said, code):
    text = run(tmp_path, how, status=1)
    assert said in text
    assert f"was at line {line_of(code)} of " in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *("both: cpu", "gloo", "objects", "both: no device: objects"),
        "both: monitored",
        *("short wait", "no watchdog", "all", "own", "alone", "random"),
    ],
)
def test_what_runs_on_gpus_goes_on(tmp_path, how):
    text = run(tmp_path, how, status=0)
    assert text.count("has done it") == 3
    sentence = looked_for(section(text, "Found"))
    assert "groups that their members alone make" in sentence


@pytest.mark.slow
def test_a_group_that_others_do_not_make_is_found(tmp_path):
    """They go on without it."""
    text = run(tmp_path, "members", status=0)
    assert text.count("has done it") == 3
    (line,) = section(text, "Found")
    assert "rank 2 has not made the group of ranks [0, 1]" in line
    assert f"script.py:{line_of('group=dist.new_group([0, 1]))')}" in line
