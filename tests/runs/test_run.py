"""``python -m dpkit run``: a script of one process, as it is for GPUs."""

import sys

import pytest

from dpkit.sim.timeline.chrome import read_trace
from tests.runs.running_scripts import (
    looked_for,
    new_command,
    run_script,
    section,
)

on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)
THREE = "--gpus", "3"
V100 = "--accelerator", "v100", "--link", "nvlink2", "--host", "eager"

# A script as it is written for GPUs: it takes all that there are.
SCRIPT = """
import sys, time
import torch
from torch import nn

assert torch.cuda.is_available()
count = torch.cuda.device_count()
print("GPUs:", count, torch.cuda.get_device_name(0))
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
net = nn.DataParallel(net).to("cuda")
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    begun = time.time()
    x, y = torch.randn(512, 1000), torch.randint(10, (512,))
    loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    print("step", step, f"{1e3 * (time.time() - begun):.3f} ms")
print("learned", f"{loss.item():.3f}", sys.argv[1:])
"""


def run(tmp_path, *options, script=SCRIPT, **others):
    """Run a script in one process; return what is printed."""
    return run_script(tmp_path, "run", *options, script=script, **others)


def words_of(text, beginning):
    """Return the words of the lines that begin so."""
    return [
        line.split()
        for line in text.splitlines()
        if line.startswith(beginning)
    ]


@pytest.mark.slow
def test_a_script_runs_as_it_is(tmp_path):
    text = run(
        tmp_path, *THREE, *V100, arguments=["--lr", "1"], start=new_command
    )
    assert "GPUs: 3 v100 (simulated)" in text
    assert "['--lr', '1']" in text
    assert "simulated (v100, nvlink2), and so is the script's time" in text


@pytest.mark.slow
def test_it_learns_on_several_what_it_learns_on_one(tmp_path):
    learned = [
        words_of(run(tmp_path, "--gpus", gpus), "learned")
        for gpus in ("1", "3")
    ]
    assert learned[0] == learned[1] != []


@pytest.mark.slow
def test_the_script_and_the_report_agree_on_time(tmp_path):
    text = run(tmp_path, *THREE, *V100)
    steps = [float(words[2]) for words in words_of(text, "step")]
    assert steps[1:] == pytest.approx([steps[1]] * 3, rel=1e-3)
    line, *_ = section(text, "A step of the optimizer, one of 4")
    number, unit = line.split()[:2]
    milliseconds = float(number) * {"ms": 1, "µs": 1e-3}[unit]
    assert milliseconds == pytest.approx(steps[1], rel=0.02)


@pytest.mark.slow
def test_what_is_copied_is_counted(tmp_path):
    """To and from each other GPU, in each of four steps.

    To it: the model, rows, and the gradient of its outputs.
    """
    text = run(tmp_path, *THREE)
    model = 4 * (1000 * 1000 + 1000 + 1000 * 10 + 10)
    rows = {
        tuple(line.split()[i] for i in (1, 3)): line
        for line in section(text, "What is sent (counted)")
        if line.split()[:1] == ["GPU"] and line.count("GPU") == 2
    }
    assert {pair: int(line.split()[4]) for pair, line in rows.items()} == {
        **{("0", r): 4 * 3 for r in "12"},
        **{(r, "0"): 4 * 2 for r in "12"},
    }
    assert f"{model / 1e6:.3f}"[:3] in rows["1", "0"]
    ways = section(text, "What is sent (counted)")[1:]
    assert len(ways) == 6  # and from the host to GPU 0, and back


@pytest.mark.slow
def test_where_the_time_goes_and_who_is_waited_for(tmp_path):
    text = run(tmp_path, *THREE)
    first, _, *rows = section(text, "Where the time goes, after the first")
    assert "the process issues work for" in first
    assert len(rows) == 3
    (line,) = section(text, "Which GPU the others wait for, by step")
    assert line.startswith(
        "  most for GPU 0: it computes longest in 3 of 3 steps"
    )


@pytest.mark.slow
def test_memory_runs_out_by_name(tmp_path):
    script = SCRIPT.replace("512", "5000")
    text = run(tmp_path, *THREE, "--memory", "0.02", script=script, status=1)
    assert "the script failed (OutOfMemoryError: CUDA out of memory" in text
    assert "held since script.py:" in text
    assert "Memory of tensors at its peak (counted)" in text


@pytest.mark.slow
def test_without_values_and_for_some_steps(tmp_path):
    text = run(tmp_path, *THREE, "--meta", "--steps", "2")
    assert "A step of the optimizer, one of 2" in text
    assert "learned" not in text


@pytest.mark.slow
def test_a_report_of_a_script_without_an_optimizer(tmp_path):
    script = "import torch; x = torch.ones(999, 999, device='cuda'); x @ x"
    text = run(tmp_path, script=script)
    assert "Where the time goes, in the whole run (modelled)" in text
    assert "mm" in text


@pytest.mark.slow
def test_a_page_and_a_timeline(tmp_path):
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    run(tmp_path, *THREE, "--report", page, "--trace", trace)
    assert "Which GPU the others wait for" in page.read_text()
    assert page.read_text().count("<svg") == 4  # a step, and three memories
    devices = {span.device for span in read_trace(trace).spans}
    assert devices >= {"sim:0", "sim:1", "sim:2", "host"}


READS = """
import torch
x = torch.ones(2, 3, device="cuda")
print(x.cpu().numpy().shape, x.sum().cpu().item(), x.cpu().tolist())
print((torch.zeros(2, 3) + x.cpu()).sum(), bool((x.cpu() > 0).all()))
print((x > 0).cpu().any(), x.to("cpu", non_blocking=True).numpy().mean())
large = torch.ones(4096, 4096, device="cuda").cpu()
print(torch.tensor([3, 4], device="cuda").cpu().tolist())
"""


@pytest.mark.slow
def test_copies_on_the_cpu_have_made_up_values(tmp_path):
    text = run(tmp_path, "--meta", script=READS)
    assert "(2, 3) 1.0 [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]" in text
    assert "tensor(6.) True" in text
    assert "tensor(False) 1.0" in text
    assert "[3, 4]" in text
    (line,) = section(text, "Otherwise than on a GPU")
    assert "numbers that the script reads are made up" in line


PHASES = """
import torch
for steps in (1, 20):
    net = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        net(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
        print("step", step)
"""


@pytest.mark.slow
def test_an_optimizer_that_begins_later_counts(tmp_path):
    text = run(tmp_path, "--steps", "3", script=PHASES)
    assert len(words_of(text, "step")) == 1 + 2
    assert "A step of the optimizer, one of 3" in text
    text = run(tmp_path, script=PHASES)
    assert "A step of the optimizer, one of 20" in text


RACE = """
import torch
x = torch.zeros(1000, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x.add_(1)
"""


@pytest.mark.slow
def test_races_are_found(tmp_path):
    text = run(tmp_path, "--races", script=RACE)
    (line,) = section(text, "Found")
    assert "nothing orders two uses of one memory: zeros writes" in line
    assert line.endswith("(script.py:6)")
    (nothing,) = section(run(tmp_path, script=RACE), "Found")
    assert "nothing was looked for" in nothing
    right = RACE.replace("x.add_(1)", "pass")
    text = run(tmp_path, "--races", script=right)
    sentence = looked_for(section(text, "Found"))
    assert sentence.endswith("uses of one memory that nothing orders")


@pytest.mark.slow
def test_real_time(tmp_path):
    script = "import time; a = time.time(); time.sleep(0.3); b = time.time()"
    script += "; assert b - a >= 0.3"
    text = run(tmp_path, "--real-time", script=script)
    assert "the script's time" not in text


@pytest.mark.slow
def test_a_script_that_fails(tmp_path):
    text = run(tmp_path, script="def f():\n    1 / 0\nf()", status=1)
    assert 'script.py", line 2, in f' in text
    assert "dpkit" not in text.partition("Traceback")[2].partition("python")[0]
    assert "the script failed (ZeroDivisionError: division by zero)" in text


@pytest.mark.slow
def test_a_script_that_ends_with_a_status(tmp_path):
    run(tmp_path, script="raise SystemExit(0)")
    text = run(tmp_path, script="raise SystemExit(7)", status=1)
    assert "the script has ended with exit status 7" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_devices_that_the_script_hides(tmp_path):
    script = (
        "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0,2'\n"
        "import torch; print('GPUs:', torch.cuda.device_count())"
    )
    assert "GPUs: 2" in run(tmp_path, *THREE, script=script)


SPAWNS = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def work(rank, size):
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:1", rank=rank, world_size=size
    )
    x = torch.full((1,), rank + 1.0, device=rank, requires_grad=True)
    x.square().backward()
    data = TensorDataset(x.detach().cpu())
    for how in ("fork", mp.get_context("fork")):
        loader = DataLoader(data, num_workers=1, multiprocessing_context=how)
        ((x,),) = loader
    x = x.to(rank)
    dist.all_reduce(x)
    print("sum", x.item(), x.device)

if __name__ == "__main__":
    size = torch.cuda.device_count()
    if sys.argv[1:] == ["backward"]:
        torch.ones(1, device="cuda", requires_grad=True).square().backward()
    mp.spawn(work, args=(size,), nprocs=size)
    for context, count in (
        (mp.get_context("spawn"), size), (mp, size - 1), (mp, size - 2)
    ):
        of_rank = [
            context.Process(target=work, args=(rank, count))
            for rank in range(count)
        ]
        for process in of_rank:
            process.start()
        if count == size:
            print("ended", [process.exitcode for process in of_rank])
        if count == size - 1:
            of_rank[0].join()
    if sys.argv[1:] == ["more"]:
        mp.spawn(work, args=(size + 1,), nprocs=size + 1)
"""


@pytest.mark.slow
@on_linux
def test_a_script_may_start_its_processes_itself(tmp_path):
    """By ``spawn``; by processes, of which it joins some."""
    text = run(tmp_path, *THREE, script=SPAWNS)
    for rank in range(3):
        assert text.count(f"sum 6.0 cuda:{rank}") == 2
    assert text.count("sum 3.0 cuda:1") == 1
    assert text.count("sum 1.0 cuda:0") == 1
    assert "ended [0, 0, 0]" in text


@pytest.mark.slow
@on_linux
def test_processes_of_a_class_of_the_script_and_of_libraries(tmp_path):
    """Those of the script are ranks; those of a pool and a manager are real.

    There are three GPUs and two processes, which begin when they are asked.
    """
    script = """
import torch, torch.distributed as dist, torch.multiprocessing as mp

class Worker(mp.Process):
    def __init__(self, rank, found):
        super().__init__(name=f"worker {rank}")
        self.rank = rank
        self.found = found

    def run(self):
        dist.init_process_group(
            "nccl", init_method="tcp://127.0.0.1:1",
            rank=self.rank, world_size=2
        )
        x = torch.full((1,), self.rank + 1.0, device=self.rank)
        dist.all_reduce(x)
        self.found[self.name] = x.item()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    with context.Pool(1) as pool, context.Manager() as manager:
        print("pool", pool.map(abs, [-3]))
        found = manager.dict()
        first, second, never = [Worker(rank, found) for rank in range(3)]
        never.start()
        never.terminate()
        first.start()
        second.start()
        while first.is_alive() or second.is_alive():
            pass
        print("found", sorted(found.items()), isinstance(first, mp.Process))
        print("ended", [p.exitcode for p in (first, second, never)])
        try:
            first.sentinel
        except NotImplementedError as error:
            print(error)
"""
    text = run(tmp_path, *THREE, script=script)
    assert "pool [3]" in text
    assert "found [('worker 0', 3.0), ('worker 1', 3.0)] True" in text
    assert "ended [0, 0, -15]" in text
    assert "(sentinel of process: worker 0); call join()" in text


@pytest.mark.slow
@on_linux
def test_a_queue_that_nobody_reads_is_named(tmp_path):
    """The script reads when its ranks have ended: no pipe holds a megabyte."""
    script = """
import torch.multiprocessing as mp

def work(queue):
    queue.put(bytes(1_000_000))

if __name__ == "__main__":
    queue = mp.Queue()
    mp.Process(target=work, args=(queue,)).start()
    print("read", len(queue.get()))
"""
    options = ["--gpus", "1", "--idle-limit", "1"]
    text = run(tmp_path, *options, script=script, status=1)
    assert "rank 0 has done nothing for" in text
    assert "(at no known line, as where its program is over" in text


@pytest.mark.slow
@on_linux
def test_a_script_reads_before_it_joins(tmp_path):
    """What waits to begin begins then; who reads what never comes is named.

    There are more GPUs than processes.
    """
    script = """
import torch.multiprocessing as mp

def work(send):
    send("sent")

if __name__ == "__main__":
    here, there = mp.Pipe()
    simple, queue = mp.get_context("spawn").SimpleQueue(), mp.Queue()
    for send, read in (
        (there.send, here.recv),
        (simple.put, simple.get),
        (queue.put, queue.get),
    ):
        process = mp.Process(target=work, args=(send,))
        process.start()
        print("read", read())
        process.join()
    try:
        print("for ever", queue.get())
    except Exception:
        print("has gone on")
"""
    options = [*THREE, "--idle-limit", "1"]
    text = run(tmp_path, *options, script=script, status=1)
    assert text.count("read sent") == 3
    assert "the script has done nothing for" in text
    assert f"(line 20 of {tmp_path / 'script.py'}, in <module>; limit" in text
    assert "has gone on" not in text


@pytest.mark.slow
@on_linux
def test_a_process_without_simulated_gpus_is_noted(tmp_path):
    """It is the standard library's, and real."""
    script = """
import multiprocessing, torch

def work():
    print("GPUs:", torch.cuda.is_available())

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
    text = run(tmp_path, *THREE, script=script)
    assert "GPUs: False" in text
    (line,) = section(text, "Otherwise than on a GPU")
    assert "multiprocessing.Process: a process of this machine" in line
    assert "script.py:9" in line


@pytest.mark.slow
@on_linux
def test_processes_that_cannot_be_ranks(tmp_path):
    """There are too few GPUs; or autograd has threads that are not forked."""
    text = run(tmp_path, *THREE, script=SPAWNS, arguments=["more"], status=1)
    assert "more processes than there are GPUs (processes together: 4" in text
    text = run(
        tmp_path, *THREE, script=SPAWNS, arguments=["backward"], status=1
    )
    assert "cannot go backward where the script has done so before" in text
