"""``python -m dpkit torchrun``: what a script sees, and what is reported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)
ROOT = Path(__file__).parents[2]

# A script as it is written for GPUs. By ``wrong`` it makes a mistake.
SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main(wrong=""):
    assert torch.cuda.is_available()
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert rank == int(os.environ["RANK"])
    assert size == int(os.environ["WORLD_SIZE"])
    assert dist.get_backend() == "nccl"
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 300), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    given = None if wrong == "data" else sampler
    loader = DataLoader(data, batch_size=8, sampler=given, pin_memory=True)
    net = nn.Linear(300, 300).to(device)
    share = 0 if wrong == "no dropout" else 0.1
    net = nn.Sequential(net, nn.Dropout(share), nn.Linear(300, 1).cuda())
    if wrong not in ("random", "no dropout"):
        torch.manual_seed(rank)
    model = DDP(net, device_ids=[local], find_unused_parameters=True)
    model = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters())
    kept_out = DataLoader(data, 32, sampler=DistributedSampler(data))
    for epoch in range(2):
        next(iter(loader))  # a batch to look at, and others to evaluate
        for x, y in kept_out:
            with torch.no_grad():
                model.eval()(x.to(device))
        model.train()
        if wrong != "order":
            sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.to(device)
            assert x.is_cuda and x.device == device
            optimizer.zero_grad()
            for _ in range(2 if wrong == "twice" else 1):
                begin = time.perf_counter()
                loss = (model(x) - y).square().mean()
                loss.backward()
                torch.cuda.synchronize()
                seconds = time.perf_counter() - begin
            optimizer.step()
    if wrong == "device":
        kept = torch.ones(10, device="cuda:0")
    print(f"rank {rank} of {size}: {1e6 * seconds:.0f} µs, {loss.item():.6f}")
    if wrong == "memory":
        kept = [torch.empty(100_000_000, device=device) for _ in range(900)]

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def torchrun(tmp_path, *options, script=SCRIPT, arguments=(), status=0):
    """Run a script on ranks; return what is printed."""
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, "-W", "ignore", "-m", "dpkit", "torchrun"]
    found = subprocess.run(
        [*command, *options, path, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == status, found.stdout
    return found.stdout


def section(text, title):
    """Return the lines of a section of the report."""
    lines = text.splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.startswith(title)]
    rest = lines[first + 1 :]
    end = rest.index("") if "" in rest else len(rest)
    return rest[:end]


def line_of(code):
    """Return the place of a line of the script, as the report names it."""
    lines = SCRIPT.splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if code in line]
    return f"script.py:{number}"


@pytest.mark.slow
def test_a_script_runs_as_it_is_and_is_reported(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "2")
    assert "rank 1 of 2" in text
    assert "simulated (h100, nvlink4)" in text
    step = section(text, "A step of the optimizer, of 8 (modelled)")
    assert "(median; from" in step[0]
    (_, zero, one) = section(text, "Where the time goes")
    assert zero.split()[0] == "0"
    assert one.split()[0] == "1"
    (_, sends, *_) = reversed(section(text, "What is sent (counted)"))
    assert "broadcast" in sends
    # 90,601 parameters of 4 bytes, in each of 8 steps
    (allreduce,) = [
        line
        for line in section(text, "What is sent (counted)")
        if "allreduce" in line
    ]
    assert allreduce.split()[:4] == ["allreduce", "2", "8", "2.899"]
    unused, compiled = section(text, "Otherwise than on a GPU")
    assert "every parameter has to be used" in unused
    assert line_of("find_unused") in unused
    assert "runs eagerly" in compiled
    assert line_of("compile(") in compiled
    assert "Found" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("order", "in the same order again (epoch 0 twice)"),
        ("twice", "gradients are sent 2 times for one step"),
        ("device", "rank 1 takes memory on cuda:0"),
        ("data", "all ranks give the model the same examples"),
        ("random", "all ranks draw the same random numbers in forward"),
    ],
)
def test_a_mistake_is_found(tmp_path, wrong, sentence):
    text = torchrun(tmp_path, "--nproc-per-node", "2", arguments=[wrong])
    (line,) = section(text, "Found")
    assert sentence in line
    assert ("script.py:" in line) == (wrong not in ("data", "random"))


@pytest.mark.slow
def test_what_a_forward_does_not_draw_may_be_the_same(tmp_path):
    """Each pass of a DataLoader draws a number too."""
    arguments = ["no dropout"]
    text = torchrun(tmp_path, "--nproc-per-node", "2", arguments=arguments)
    assert "Found" not in text


@pytest.mark.slow
def test_out_of_memory_names_what_held_it(tmp_path):
    arguments = ["memory"]
    ranks = "--nproc-per-node", "2"
    text = torchrun(tmp_path, *ranks, arguments=arguments, status=1)
    assert "OutOfMemoryError" in text
    assert f"held since {line_of('100_000_000')}:" in text


@pytest.mark.slow
def test_without_values_time_and_memory_are_the_same(tmp_path):
    """And numbers are made up where the script prints them."""
    ranks = "--nproc-per-node", "2"
    with_values = torchrun(tmp_path, *ranks)
    without = torchrun(tmp_path, *ranks, "--meta")
    for title in ("A step of the optimizer", "Memory", "What is sent"):
        assert section(without, title) == section(with_values, title)
    assert "µs, 1.000000" in without
    # Integers have values on a machine without: a model may be given some.
    words = SCRIPT.replace("randn(64, 300)", "ones(64, 300).long()")
    words = words.replace("nn.Linear(300, 300)", "nn.EmbeddingBag(9, 300)")
    torchrun(tmp_path, *ranks, "--meta", script=words)
    assert "made up" in section(without, "Otherwise than on a GPU")[-1]


@pytest.mark.slow
def test_it_ends_after_so_many_steps(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "2", "--steps", "3")
    assert "A step of the optimizer, of 3" in text
    assert "rank 0 of 2" not in text


@pytest.mark.slow
def test_two_nodes_number_their_gpus_from_0(tmp_path):
    """Slower: what they send goes over the network."""
    nodes = "--nnodes", "2", "--nproc-per-node", "2"
    text = torchrun(tmp_path, *nodes, "--steps", "4")
    assert "nodes of 2 on infiniband400" in text
    assert "Found" not in text


SPAWNS = """
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, size):
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:1", rank=rank, world_size=size
    )
    x = torch.full((1,), rank + 1.0, device=rank)
    dist.all_reduce(x)
    print("sum", x.item(), x.device)

if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(work, args=(size,), nprocs=size)
    processes = [mp.Process(target=work, args=(r, size)) for r in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print("ended", [process.exitcode for process in processes])
"""


@pytest.mark.slow
def test_a_script_may_start_its_processes_itself(tmp_path):
    text = torchrun(tmp_path, "--spawns", "3", script=SPAWNS)
    for rank in range(3):
        assert text.count(f"sum 6.0 cuda:{rank}") == 2
    assert "ended [0, 0, 0]" in text


@pytest.mark.slow
def test_what_cannot_be_configured_is_refused_in_a_line(tmp_path):
    text = torchrun(tmp_path, "--accelerator", "abacus", status=2)
    assert "abacus" in text
    assert "Traceback" not in text
