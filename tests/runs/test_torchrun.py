"""``python -m dpkit torchrun``: what a script sees, and what is reported."""

import re
import sys
from contextlib import ExitStack
from html import unescape

import pytest
import torch

from dpkit import sim
from dpkit.runs.forked.running import RankError
from dpkit.runs.torchrun.failures import failure_of, run_failure
from dpkit.runs.torchrun.held import FEW_LINES, HeldMemory
from dpkit.sim.timeline.chrome import read_trace
from tests.runs import running_scripts
from tests.runs.running_scripts import looked_for, section

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

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
    if rank == 0 or wrong == "file":
        torch.save(net.state_dict(), "net.pt")
    torch.save(net.state_dict(), f"net-{rank}.pt")
    if wrong == "device":
        kept = torch.ones(10, device="cuda:0")
    print(f"rank {rank} of {size}: {1e6 * seconds:.0f} µs, {loss.item():.6f}")
    if wrong == "memory":
        kept = [torch.empty(100_000_000, device=device) for _ in range(900)]

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def torchrun(tmp_path, *options, script=SCRIPT, **others):
    """Run a script on ranks; return what is printed."""
    return running_scripts.torchrun(
        tmp_path, *options, script=script, **others
    )


def assert_nothing_found(text):
    """See that the report says so, and that it begins with this."""
    sentence = looked_for(section(text, "Found"))
    assert sentence.startswith("looked for: ")
    assert text.index("\nFound") < text.index("\nMemory of tensors")


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
    step = section(text, "A step of the optimizer, one of 8 (modelled)")
    assert "(median; from" in step[0]
    (_, zero, one) = section(text, "Where the time goes")
    assert zero.split()[0] == "0"
    assert one.split()[0] == "1"
    (_, sends, *_) = reversed(section(text, "What is sent (counted)"))
    assert "broadcast" in sends
    # 90,601 parameters of 4 bytes, in each of 8 steps, and a list of which of
    # four tensors are used
    (allreduce,) = [
        line
        for line in section(text, "What is sent (counted)")
        if "allreduce" in line
    ]
    assert allreduce.split()[:4] == ["allreduce", "2", "16", "2.899"]
    (compiled,) = section(text, "Otherwise than on a GPU")
    assert "runs eagerly" in compiled
    assert line_of("compile(") in compiled
    assert_nothing_found(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("order", "in the same order again (epoch 0 twice)"),
        ("twice", "gradients are sent 2 times for one step"),
        ("device", "rank 1 takes memory on cuda:0"),
        ("data", "all ranks give the model the same examples"),
        ("random", "all ranks draw the same random numbers in forward"),
        ("file", "/net.pt by torch.save, each over the others"),
    ],
)
def test_a_mistake_is_found(tmp_path, wrong, sentence):
    text = torchrun(tmp_path, "--nproc-per-node", "2", arguments=[wrong])
    (line,) = section(text, "Found")
    assert sentence in line
    assert ("script.py:" in line) == (wrong not in ("data", "random", "file"))


NOT_CHOSEN = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local if "in full" in sys.argv else None)
assert torch.cuda.current_device() == 0
model = DDP(nn.Linear(2, 3).to(device))
optimizer = torch.optim.SGD(model.parameters())
for step in range(2):
    model(torch.full((4, 2), 1.0 + local, device=device)).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
"""


@pytest.mark.slow
def test_a_process_begins_on_the_first_gpu_of_its_node(tmp_path):
    """As on CUDA, it is the current one of each rank that chooses none."""
    options = "--nproc-per-node", "2", "--nnodes", "2"
    text = torchrun(
        tmp_path, *options, script=NOT_CHOSEN, arguments=["in full"]
    )
    (line,) = section(text, "Found")
    assert "the current device is cuda:0, which is another rank's" in line
    assert "script.py:14; ranks 1, 3)" in line
    text = torchrun(tmp_path, *options, script=NOT_CHOSEN, status=1)
    found = section(text, "Found")
    assert any("rank 1 takes memory on cuda:0" in line for line in found)


TWO_MODELS = """
import os, torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as tp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.manual_seed(local)
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))


def wrapped(*sizes):
    net = nn.Sequential(nn.Linear(*sizes), nn.ReLU(), nn.Linear(60, 20))
    return DDP(net.cuda(), process_group=mesh["dp"].get_group())


made, judge = wrapped(20, 60), wrapped(20, 60)
first = torch.optim.SGD(made.parameters())
second = torch.optim.SGD(judge.parameters())
x = torch.randn(4, 20).cuda()
for _ in range(3):  # of a GAN: the judge's gradients are sent twice
    second.zero_grad()
    (judge(x).mean() - judge(made(x).detach()).mean()).backward()
    second.step()
    first.zero_grad()
    judge(made(x)).mean().backward()
    first.step()
net = nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 20)).cuda()
columns, rows = tp.ColwiseParallel(), tp.RowwiseParallel()
tp.parallelize_module(net, mesh["tp"], {"0": columns, "2": rows})
optimizer = torch.optim.SGD(net.parameters())
for _ in range(3):  # activations are many, parameters are few
    x = torch.ones(500, 20, device="cuda", requires_grad=True)
    net(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_right_scripts_are_not_taken_for_wrong_ones(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "4", script=TWO_MODELS)
    assert_nothing_found(text)


@pytest.mark.slow
def test_what_a_forward_does_not_draw_may_be_the_same(tmp_path):
    """Each pass of a DataLoader draws a number too."""
    arguments = ["no dropout"]
    text = torchrun(tmp_path, "--nproc-per-node", "2", arguments=arguments)
    assert_nothing_found(text)


@pytest.mark.slow
def test_out_of_memory_names_what_held_it(tmp_path):
    arguments = ["memory"]
    ranks = "--nproc-per-node", "2"
    text = torchrun(tmp_path, *ranks, arguments=arguments, status=1)
    assert text.count("OutOfMemoryError") == 1
    assert text.count(f"held since {line_of('100_000_000')}:") == 1


def test_lines_are_forgotten_of_memory_that_is_gone():
    sim.register()
    held = HeldMemory()
    with sim.machine(backing="meta", memory_bytes=30 << 20):
        with ExitStack() as stack:
            held.begin(stack)
            kept = torch.empty(20 << 18, device="sim:0")
            for _ in range(3 * FEW_LINES):
                torch.empty(2 << 18, device="sim:0")
            assert len(held._lines) < 1.1 * FEW_LINES
            with pytest.raises(torch.OutOfMemoryError) as found:
                torch.empty(20 << 18, device="sim:0")
        del kept
    told = found.value.__notes__
    assert any("test_torchrun.py" in line and "20" in line for line in told)


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
    assert "A step of the optimizer, one of 3" in text
    assert "rank 0 of 2" not in text


STEPS = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(dist.get_rank())
model = DDP(nn.Linear(2000, 2000).cuda())
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    begin = time.time()
    model(torch.randn(1, 2000).cuda()).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
    seconds = time.time() - begin
print(f"{__name__} {sys.argv[1:]} rank {dist.get_rank()}: {seconds > 0.001}")
"""


def seconds_of_a_step(text):
    """Return what a step takes, from the report."""
    number, unit, *_ = section(text, "A step of the optimizer")[0].split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


@pytest.mark.slow
def test_two_nodes_are_slower(tmp_path):
    """What they send goes over the network; GPUs have numbers from 0.

    With the host of a CPU, whose launches take least: here links decide.
    """
    host = "--host", "cpu"
    nodes = "--nnodes", "2", "--nproc-per-node", "2", *host
    text = torchrun(tmp_path, *nodes, script=STEPS)
    assert "nodes of 2 on infiniband400" in text
    assert_nothing_found(text)
    one = torchrun(tmp_path, "--nproc-per-node", "4", *host, script=STEPS)
    assert seconds_of_a_step(text) > 1.5 * seconds_of_a_step(one)


@pytest.mark.slow
def test_a_module_and_what_is_written(tmp_path):
    """-m, --report and --trace; and --real-time: a step takes milliseconds."""
    files = "--report", "page.html", "--trace", "trace.json"
    ranks = "--nproc-per-node", "2"
    text = torchrun(
        *(tmp_path, *ranks, *files, "--real-time", "-m"),
        script=STEPS,
        arguments=["--its", "own"],
    )
    for rank in range(2):
        assert f"__main__ ['--its', 'own'] rank {rank}: True" in text
    page = (tmp_path / "page.html").read_text()
    assert "script --its own" in page
    for title in ("A step of the optimizer, one of 3", "The last step"):
        assert f"<h2>{title}" in page
    assert page.count("<svg") == 3  # the step, and the memory of each GPU
    timeline = read_trace(tmp_path / "trace.json")
    assert {"sim:0", "sim:1"} < {span.device for span in timeline.spans}


LARGE = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
x = torch.empty(2**38, device="cuda")
dist.all_reduce(x)
print("sent", x.nbytes)
"""


@pytest.mark.slow
@pytest.mark.parametrize("alike", [(), ("--alike",)])
def test_without_values_a_message_may_be_larger_than_the_machine(
    tmp_path, alike
):
    options = ["--nproc-per-node", "2", "--meta", "--memory", "2000", *alike]
    assert "sent 1099511627776" in torchrun(tmp_path, *options, script=LARGE)


@pytest.mark.slow
def test_rank_0_stands_for_all(tmp_path):
    """It takes the time that all take; and time is simulated as usual."""
    ranks = "--nproc-per-node", "4", "--meta"
    all_ranks = torchrun(tmp_path, *ranks, script=STEPS)
    one = torchrun(tmp_path, *ranks, "--alike", script=STEPS)
    assert "rank 3: False" in all_ranks
    assert "rank 0: False" in one
    assert "rank 1" not in one
    title = "A step of the optimizer"
    assert section(one, title) == section(all_ranks, title)
    refused = torchrun(tmp_path, "--alike", status=2)
    assert "--alike needs --meta" in refused


DETAILS = """
import argparse, atexit, os, sys, time, timeit
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
atexit.register(lambda: print(f"rank {rank} at exit"))
parser = argparse.ArgumentParser()
if sys.argv[1:] == ["right"]:
    parser.add_argument("--local_rank", default=int(os.environ["LOCAL_RANK"]))
else:
    parser.add_argument("--local_rank", default=-1)
parser.add_argument("how")
options = parser.parse_args()
how, local_rank = options.how, options.local_rank
begin = timeit.default_timer()
time.sleep(3)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream=stream):
    is_there = torch.cuda.current_stream() == stream
print(f"rank {rank}: {timeit.default_timer() - begin:.3f} s {is_there}")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, *, x):
        return self.second(self.first(x))


model = Model().to("meta").to_empty(device="cuda")
model.first.weight.data.normal_()
nn.init.zeros_(model.first.bias)
if how == "right":
    model.second.reset_parameters()
other = Model().to("meta").to_empty(device="cuda")
other.load_state_dict(model.state_dict(), assign=True)
other.eval()(x=torch.ones(4, 3).cuda())
model = DDP(model)
data = torch.ones(4, 3).cuda() * (rank if how == "right" else 1)
on_cpu = torch.optim.SGD(nn.Linear(3, 3).parameters())
optimizer = torch.optim.SGD(model.parameters())
groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
for step in range(4):
    if how == "wrong" and step == 3 and rank == 3:
        break
    if step < 3:
        model(x=data).sum().backward()
    on_cpu.step()
    on_cpu.step()
    optimizer.step()
for group in groups[:2] if rank < 2 else groups[1:2]:
    if rank in dist.get_process_group_ranks(group):
        dist.all_reduce(torch.ones(1, device="cuda"), group=group)
dist.barrier()
if rank in (0, 2):
    dist.all_reduce(torch.ones(1, device="cuda"), group=groups[2])
if how == "past":
    torch.cuda.current_blas_handle()
if how == "left out" and rank == 0:
    dist.all_reduce(torch.ones(1, device="cuda"), async_op=True)
few, many = torch.ones(3, device="cuda"), torch.ones(5000, device="cuda")
for step in range(2 if how == "right" and rank < 2 else 0):
    (dist.recv if rank else dist.send)(few, 1 - rank)
if how == "right" and rank < 2:
    (dist.send if rank else dist.recv)(many, 1 - rank)
"""


@pytest.fixture(scope="module")
def details(tmp_path_factory):
    """What is printed for a script that makes no mistake."""
    path = tmp_path_factory.mktemp("details")
    ranks = "--nproc-per-node", "4"
    return torchrun(path, *ranks, script=DETAILS, arguments=["right"])


@pytest.mark.slow
def test_what_a_script_sees_of_time_and_its_end(details):
    for rank in range(4):
        assert f"rank {rank}: 3.000 s True" in details
        assert f"rank {rank} at exit" in details
    assert_nothing_found(details)


@pytest.mark.slow
def test_what_is_sent_is_told_by_group(details):
    """And steps are those of the first optimizer that has work on a GPU."""
    assert 0 < seconds_of_a_step(details) < 0.1
    assert "A step of the optimizer, one of 4 (modelled)" in details
    lines = section(details, "What is sent (counted)")
    found = [line.split("  ") for line in lines if "allreduce" in line]
    among = [next(filter(None, words[2:])).strip() for words in found]
    assert among == ["4", "ranks 0, 1", "ranks 0, 2"]


@pytest.mark.slow
def test_each_row_counts_what_rank_0_sends(details):
    """Twice 12 bytes go to rank 1; the 20,000 that come count there."""
    _, *lines = section(details, "What is sent (counted)")
    rows = {" ".join(line.split()[:-6]): line.split()[-6:] for line in lines}
    # Times, bytes, and both for one of the four steps. Three of these
    # reduce the 18 numbers of the model.
    told = {
        "message 2": "2 24 B 0.500 6 B",
        "allreduce 4": "3 216 B 0.750 54 B",
        "allreduce ranks 0, 2": "1 4 B 0.250 1 B",
        "barrier 4": "1 0 B 0.250 0 B",
    }
    for row, words in told.items():
        assert rows[row] == words.split()


ROWS = """
import time, torch, torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
for step in range(3):
    weight.sum().backward()
    if step == 1:
        torch.empty((1 + rank) << 20, dtype=torch.uint8, device="cuda")
    optimizer.step()
x = torch.ones(1, device="cuda")
for _ in range(3):
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(0.5)
dist.all_reduce(x)
"""


@pytest.mark.slow
def test_each_rank_has_its_row_of_memory_and_its_waits(tmp_path):
    """1 MiB each of weights and gradients, and for a moment more by rank.

    Rank 1 is late for three of four, by half a second for two others.
    """
    text = torchrun(tmp_path, "--nproc-per-node", "3", script=ROWS)
    heads, *rows = section(text, "Memory of tensors at its peak (counted)")
    assert heads.endswith("parameters  gradients  activations  other")
    for rank, row in enumerate(rows):
        more = f"{1 + rank} MiB"
        words = f"{rank} {3 + rank} MiB 2 1 MiB 1 MiB 0 B {more}"
        assert row.split() == words.split()
    (line,) = section(text, "Who the ranks wait for in collectives (modelled)")
    assert "most for rank 1: it came last to 3 of 4" in line
    assert "the others waited 3 s for it, added up" in line


@pytest.mark.slow
def test_mistakes_that_several_ranks_show(tmp_path):
    ranks = "--nproc-per-node", "4"
    text = torchrun(tmp_path, *ranks, script=DETAILS, arguments=["wrong"])
    option, weight, bias, *buffers, examples, steps = section(text, "Found")
    assert "option --local_rank is -1" in option
    assert "script.py:19; ranks 0, 1, 2, 3" in option
    for name, line in zip(
        ("weight", "bias", "running_mean", "running_var"),
        (weight, bias, *buffers),
        strict=True,
    ):
        assert f"BatchNorm1d.{name} is used, and nobody" in line
    assert "the same examples" in examples
    assert "different numbers of steps (rank 0: 4, rank 1: 4" in steps


@pytest.mark.slow
def test_a_run_that_fails_is_reported_until_then(tmp_path):
    """Each error once, what was found, memory, and each rank's line."""
    ranks = "--nproc-per-node", "4", "--report", "page.html"
    text = torchrun(
        tmp_path, *ranks, script=DETAILS, arguments=["past"], status=1
    )
    page = (tmp_path / "page.html").read_text()
    for said in (text, unescape(page)):
        assert said.count("gone past them to CUDA itself") == 1
        assert said.count("the script's option --local_rank is -1") == 1
        assert said.count("torch.cuda.current_blas_handle()") == 1
        for rank in range(4):
            assert re.search(rf"rank {rank} was at line \d+ of .*script", said)
        assert re.search(r" … \d+ lines? of (torch|dpkit)", said)
        assert "/dpkit/" not in said
    assert len(section(text, "Memory of tensors at its peak")) == 5
    titles = re.findall("<h2>([^<]*[a-z])", page)
    assert titles[:3] == [
        "Found",
        "Where it failed",
        "Memory of tensors at its peak",
    ]
    assert page.count("<svg") == 4
    assert "rank 0 at exit" in text


def failed_on(rank, count):
    """Return how a rank fails that has found so many."""
    try:
        torch.nn.Linear(2, 3)(torch.ones(1, count))
    except RuntimeError as error:
        error.add_note(f"of rank {rank}")
        return failure_of(error)


def test_one_error_of_several_ranks_is_told_once():
    """It may differ in numbers; another is told besides."""
    other = failure_of(ValueError("another"))
    failures = {1: failed_on(1, 5), 0: other, 2: failed_on(2, 7)}
    told = run_failure(failures, RankError("rank 1 failed (shapes)", []))
    assert "ValueError: another" in told.tracebacks
    head, *frames = told.tracebacks[-1].splitlines()
    assert head == "Traceback (most recent call last, ranks 1, 2):"
    assert "torch.nn.Linear(2, 3)" in frames[1]
    assert re.fullmatch(r"  … \d lines of torch", frames[-1])
    assert told.message == "rank 1 failed (shapes)"
    assert told.notes == ["of rank 1"]


@pytest.mark.slow
def test_a_collective_that_ranks_leave_out_is_named(tmp_path):
    ranks = "--nproc-per-node", "4"
    text = torchrun(
        tmp_path, *ranks, script=DETAILS, arguments=["left out"], status=1
    )
    assert "a rank left out allreduce number" in text
    assert "(ranks that came: 0)" in text


RACES = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(rank)
is_right = sys.argv[1:] == ["right"]


def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randn(4, 200).pin_memory().cuda(non_blocking=True)
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


net = nn.Sequential(*[nn.Linear(200, 200) for _ in range(3)]).cuda()
if is_right:
    train(DDP(net, bucket_cap_mb=0.2))
    for layer in net:
        fully_shard(layer)
    train(fully_shard(net))
x, y, z = (torch.randn(100, device="cuda") for _ in range(3))
work = dist.all_reduce(x, async_op=True)
if is_right:
    work.wait()
x * 2
work = dist.all_gather_into_tensor(x.new_empty(200), y, async_op=True)
if is_right:
    torch.cuda.synchronize()
y.zero_()
other = dist.P2POp(dist.isend, x, 1 - rank)
works = dist.batch_isend_irecv([other, dist.P2POp(dist.irecv, z, 1 - rank)])
if is_right:
    while not works[-1].is_completed():
        pass
z + 1
if is_right:  # memory is kept for a collective that nobody waits for
    more = torch.ones(100, device="cuda")
    dist.all_reduce(more, group=dist.new_group(), async_op=True)
    del more
    dist.all_reduce(x)
    more = torch.ones(100, device="cuda")
on_cpu = x.to("cpu", non_blocking=True)
if is_right:
    torch.cuda.current_stream().synchronize()
on_cpu + 1
"""


@pytest.mark.slow
def test_races_are_found(tmp_path):
    """In what overlaps collectives, and not in PyTorch's engines."""
    ranks = "--races", "--nproc-per-node", "2"
    right = torchrun(tmp_path, *ranks, script=RACES, arguments=["right"])
    assert_nothing_found(right)
    found = section(torchrun(tmp_path, *ranks, script=RACES), "Found")
    uses = [
        "allreduce writes (group 0, script.py:33), mul reads (compute)",
        "allgather reads (group 0, script.py:37), zero_ writes (compute)",
        "message writes (group 0 1 → 0, tag 0, script.py:42), add reads",
        "copy to cpu writes (compute, script.py:53), add reads (python)",
    ]
    for sentence in uses:
        assert any(sentence in line for line in found), sentence
    assert "script.py:36; ranks 0, 1" in found[0]


@pytest.mark.slow
def test_what_cannot_be_configured_is_refused_in_a_line(tmp_path):
    text = torchrun(tmp_path, "--accelerator", "abacus", status=2)
    assert "abacus" in text
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--trace", "no/a.json"], "(--trace: 'no/a.json'): there is no fold"),
        (["--report", "no/a.html"], "(--report: 'no/a.html'): there is no f"),
        (["other.py"], "there is no such script (file: other.py)"),
        (["--idle-limit", "0"], "positive number of seconds (idle_limit: '0"),
        (["--idle-limit", "-1"], "positive number of seconds (idle_limit: '-"),
        (["--idle-limit", "nan"], "number of seconds (idle_limit: 'nan')"),
        (["--idle-limit", "soon"], "--idle-limit: invalid float value: 'soon"),
    ],
)
def test_what_is_not_there_is_refused_before_the_run(
    tmp_path, options, refusal
):
    text = torchrun(tmp_path, *options, script="print('ran')", status=2)
    assert refusal in text
    assert "ran" not in text.split()
