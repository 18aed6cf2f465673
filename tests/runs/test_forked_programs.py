"""What a rank may do besides: polling, threads, calls that nobody awaits."""

import resource
import sys

import pytest

from tests.runs.running_scripts import new_command, torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

PROGRAM = """
import os, sys, threading, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def ones(count=2):
    return torch.ones(count, device="cuda")


def two_on_one_tensor():
    x = ones()
    works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    return x[0].item()


def dropped_before_synchronize():
    x = ones()
    dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    return x[0].item()


def many_at_once():
    xs = [ones() for _ in range(150)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for work in works:
        work.wait()
    return sum(x[0].item() for x in xs)


def file_of_another():
    path = "file-of-rank-0"
    if rank == 0:
        time.perf_counter()  # it waits for the parent
        open(path, "w").close()
    while not os.path.exists(path):
        time.sleep(0.01)
    return "found"


def time_in_a_thread():
    seconds = []

    def sleep():
        begin = time.perf_counter()
        time.sleep(1)
        seconds.append(time.perf_counter() - begin)

    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join()
    return f"{seconds[0]:.3f}"


class Times(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        begin = time.perf_counter()
        time.sleep(0.01)
        return time.perf_counter() - begin


def time_in_workers():
    (seconds,) = DataLoader(Times(), batch_size=2, num_workers=1)
    return bool((seconds >= 0.01).all())


def time_limit_of_the_store():
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        time.sleep(2)
        store.set("late", "1")
        return store.timeout.total_seconds()
    store.set_timeout(timedelta(seconds=1))
    try:
        return store.get("late")
    except dist.DistStoreError as error:
        return str(error).partition(" (")[0]


def polls_of_a_long_wait():
    if rank == 1:
        time.sleep(2)
    work = dist.all_reduce(ones(), async_op=True)
    event = torch.cuda.Event()
    for polls in range(20_000):
        if work.is_completed():
            break
    work.wait()
    event.record()
    while polls < 20_000 and not event.query():
        polls += 1
    return polls < 20_000


def polls_before_it_is_sent():
    other = 1 - rank
    if rank == 1:
        dist.recv(ones(), other)
        dist.send(3 * ones(), other)
        return True
    x = ones()
    work = dist.irecv(x, other)
    before = work.is_completed()
    dist.send(ones(), other)
    while not work.is_completed():
        pass
    return not before and x[0].item() == 3


def reads_the_time():
    begin, reads = time.perf_counter(), 0
    while time.perf_counter() - begin < 0.3 and reads < 20_000:
        reads += 1
    return reads < 20_000


def device_of_a_thread():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(torch.ones(1, device="cuda").device)
    )
    thread.start()
    thread.join()
    return found[0]


if len(sys.argv) > 1:
    many_at_once()
    print("ended")
    sys.exit()
for check in (
    two_on_one_tensor,
    dropped_before_synchronize,
    file_of_another,
    time_in_a_thread,
    time_in_workers,
    time_limit_of_the_store,
    polls_of_a_long_wait,
    polls_before_it_is_sent,
    reads_the_time,
    device_of_a_thread,
):
    value = check()
    print(f"rank {rank} {check.__name__} {value}", flush=True)
dist.barrier()
if rank == 1:  # before the call the parent has other things to do
    x = ones()
    time.perf_counter()
    for _ in range(900):
        x.add_(0)
    dist.isend(x, 0)
else:
    x = torch.zeros(2, device="cuda")
    dist.recv(x, 1)
    print("received", x[0].item())
"""


@pytest.mark.slow
def test_what_a_rank_may_do(tmp_path):
    """Each check of the program, and at its end an isend without a wait."""
    text = torchrun(tmp_path, "--nnodes", "2", script=PROGRAM)
    for rank in range(2):
        for found in (
            "two_on_one_tensor 4.0",
            "dropped_before_synchronize 2.0",
            "file_of_another found",
            "time_in_a_thread 1.000",
            "time_in_workers True",
            "polls_of_a_long_wait True",
            "polls_before_it_is_sent True",
            "reads_the_time True",
            "device_of_a_thread cuda:0",
        ):
            assert f"rank {rank} {found}" in text
    wait = "wait timeout after 1000ms, keys: /default_pg/0//late"
    assert f"rank 0 time_limit_of_the_store {wait}" in text
    assert "rank 1 time_limit_of_the_store 600.0" in text
    assert "received 1.0" in text


def _allow_few_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))


@pytest.mark.slow
def test_collectives_need_more_files_than_are_usual(tmp_path):
    ranks = "--nproc-per-node", "2"
    few = _allow_few_files
    text = torchrun(
        *(tmp_path, *ranks),
        script=PROGRAM,
        arguments=["many"],
        start=new_command,
        preexec_fn=few,
    )
    assert text.count("ended") == 2
