"""Ranks that fail: named at once, nothing is left, and the next launch runs.

No test waits for a timeout of PyTorch. Most take a fraction of a second.
"""

import gc
import re
import signal
import sys
import threading
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory.garbage import collect_garbage
from tests.forked_python import start
from tests.runs.engines_on_ranks import (
    blocks_of,
    loss_of,
    own_device,
    own_rows,
    sharded,
    transformer,
)


@pytest.fixture(autouse=True)
def nothing_left():
    """After each test: no thread, and ranks run and send."""
    begin, before = time.monotonic(), threading.enumerate()
    hook = sys.excepthook
    yield
    assert sys.excepthook is hook
    assert time.monotonic() - begin < 280  # of PyTorch's 300
    assert threading.enumerate() == before
    assert not dist.is_initialized()
    assert dpkit.sim.launch(total, 3) == [3.0, 3.0, 3.0]


def total():
    x = torch.ones(1, device="sim")
    dist.all_reduce(x)
    return x.item()


def error_of(program, k, *args):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(program, k, *args)
    return caught.value


# -- a rank raises


def fail_itself(rank):
    if dist.get_rank() == rank:
        raise KeyError("broken")
    while True:  # what catches errors does not keep a rank going
        try:
            dist.barrier()
        except Exception:
            continue


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_raises_is_named(rank):
    error = error_of(fail_itself, 3, rank)
    assert str(error) == f"rank {rank} failed (KeyError: 'broken')"
    assert isinstance(error.__cause__, KeyError)


class UntoldError(Exception):
    def __str__(self):
        raise OSError


class NoTextError(Exception):
    def __str__(self):
        return None


class LeavingError(Exception):
    def __str__(self):
        raise SystemExit


def fail_with(kind):
    if dist.get_rank() == 1:
        raise kind
    dist.barrier()


@pytest.mark.parametrize("kind", [UntoldError, NoTextError, LeavingError])
def test_an_error_without_a_text_has_its_rank(kind):
    error = error_of(fail_with, 2, kind)
    text = f"{kind.__name__}: <exception str() failed>"
    assert str(error) == f"rank 1 failed ({text})"


async def coroutine():
    pass


def generator():
    yield


async def asynchronous_generator():
    yield


@pytest.mark.parametrize(
    "fn", [coroutine, generator, asynchronous_generator, partial(generator)]
)
def test_a_function_that_runs_nothing_is_refused(fn):
    with pytest.raises(TypeError, match="of which nothing has run") as caught:
        dpkit.sim.launch(fn, 2)
    name = getattr(fn, "__name__", "partial")
    kind = getattr(fn, "__name__", "generator").replace("_", " ")
    assert f"{kind}, of which" in str(caught.value)
    assert name in str(caught.value)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"not a function \(fn: int\)"):
        dpkit.sim.launch(3, 2)


@pytest.mark.parametrize("algorithm", ["x", "", 3, "x:2"])
def test_an_unknown_algorithm_is_refused_before_a_rank_runs(algorithm):
    ran = []
    name = str(algorithm).partition(":")[0]
    with pytest.raises(ValueError, match=rf"\(algorithm: '{name}', known: "):
        dpkit.sim.launch(lambda: ran.append(1), 2, algorithm=algorithm)
    assert ran == []


def leave_python():
    if dist.get_rank() == 1:
        sys.exit(3)
    dist.barrier()


def test_sys_exit_ends_the_launch_only():
    assert "rank 1 failed (SystemExit: 3)" in str(error_of(leave_python, 3))


def engine(name):
    model = transformer().to(own_device())
    if name == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.01)
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    return sharded(model, mesh)


def break_in(name, where):
    def broken(*_):
        raise ValueError(f"in {where}")

    def break_backward(module, args, out):
        out.register_hook(broken)

    model = engine(name)
    if dist.get_rank() == 1:
        block = blocks_of(model.module if name == "ddp" else model)[0]
        if where == "forward":
            block.register_forward_hook(broken)
        else:
            block.norm.register_forward_hook(break_backward)
    x, y = own_rows()
    loss_of(model(x), y).backward()
    dist.barrier()


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_a_rank_that_raises_in_an_engine_is_named(name, where):
    error = error_of(break_in, 4, name, where)
    assert str(error) == f"rank 1 failed (ValueError: in {where})"
    del error
    collect_garbage(simulation.memory)  # more than once: a graph is in between
    assert not any(simulation.memory.live)


# -- a rank runs out of memory


def run_out(name):
    model = engine(name)
    x, y = own_rows()
    loss = loss_of(model(x), y)
    if dist.get_rank() == 1:
        free = torch.sim.mem_get_info()[0]
        taken = torch.empty(free - 2000, dtype=torch.uint8, device="sim")
    loss.backward()
    dist.barrier()
    return taken


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_out_of_memory_in_backward_is_named(name):
    error = error_of(run_out, 4, name)
    assert "rank 1 failed (OutOfMemoryError: " in str(error)
    assert "sim:1" in str(error)
    del error
    gc.collect()
    assert torch.sim.memory_allocated(1) < 1_000_000  # of 16 GiB


# -- a rank leaves out a collective, or calls another


def ones(*shape, **settings):
    return torch.ones(*shape, device="sim", **settings)


def leave_out(what):
    """Rank 2 has fewer batches than the others."""
    rank = dist.get_rank()
    if what == "all_reduce":
        for _ in range(4 if rank == 2 else 5):
            dist.all_reduce(ones(3))
        return
    model = engine(what)
    x, y = own_rows()
    for _ in range(1 if rank == 2 else 2):
        loss_of(model(x), y).backward()


def test_who_leaves_out_a_collective_is_named():
    assert str(error_of(leave_out, 3, "all_reduce")) == (
        "no rank can go on (rank 0 waits in allreduce number 4 of group 0; "
        "rank 1 waits in allreduce number 4 of group 0; rank 2 has returned)"
    )


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_uneven_batches_of_an_engine_are_named(name):
    error = str(error_of(leave_out, 3, name))
    assert error.startswith("no rank can go on (rank 0 waits in ")
    assert error.endswith("rank 2 has returned)")


def send_around():
    """All send before anyone receives."""
    rank, k = dist.get_rank(), dist.get_world_size()
    dist.send(ones(3), (rank + 1) % k)
    dist.recv(ones(3), (rank - 1) % k)


def come_but_one():
    if dist.get_rank() != 1:
        dist.monitored_barrier()


@pytest.mark.skipif(
    torch.__version__ < "2.15",  # some older ones know gloo's alone
    reason="this torch is older than 2.15",
)
def test_a_barrier_names_who_has_not_come():
    dpkit.sim.launch(dist.monitored_barrier, 3)
    error = str(error_of(come_but_one, 3))
    assert "rank 0 waits in barrier number 0 of group 0; rank 1 has" in error


def test_sends_in_a_circle_are_named():
    error = str(error_of(send_around, 3))
    assert "rank 2 waits in message 2 → 0, tag 0 number 0 of group" in error


def in_another_order():
    calls = [
        lambda: dist.all_reduce(ones(3)),
        lambda: dist.broadcast(ones(3), 0),
    ]
    for call in calls if dist.get_rank() else calls[::-1]:
        call()


def one_on(rank, value, other):
    return value if dist.get_rank() == rank else other


# What rank 2 does otherwise than the others, and how both are told.
MISMATCHES = {
    "order": (
        in_another_order,
        r"rank 0: broadcast\(root=0\) of \(3,\) float32, rank 1: allreduce",
    ),
    "shape": (
        lambda: dist.all_reduce(ones(one_on(2, 4, 3))),
        r"rank 0: allreduce\(op=sum\) of \(3,\) float32, "
        r"rank 2: allreduce\(op=sum\) of \(4,\) float32; "
        "number 0 of group 0",
    ),
    "dtype": (
        lambda: dist.all_reduce(
            ones(3, dtype=one_on(2, torch.float16, torch.float32))
        ),
        r"rank 2: allreduce\(op=sum\) of \(3,\) float16",
    ),
    "op": (
        lambda: dist.all_reduce(
            ones(3), one_on(2, dist.ReduceOp.MAX, dist.ReduceOp.SUM)
        ),
        r"rank 2: allreduce\(op=max\)",
    ),
    "root": (
        lambda: dist.broadcast(ones(3), one_on(2, 1, 0)),
        r"rank 0: broadcast\(root=0\) .* rank 2: broadcast\(root=1\)",
    ),
    "what is sent and received": (
        lambda: one_on(
            2,
            lambda: dist.recv(ones(4), 1),
            lambda: dist.get_rank() and dist.send(ones(3), 2),
        )(),
        "rank 1: message of 3 float32, rank 2: message of 4 float32",
    ),
    "the last batch is smaller": (
        lambda: dist.all_gather_into_tensor(ones(9), ones(one_on(2, 2, 3))),
        r"rank 2: allgather of \(2,\)",
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_who_calls_otherwise_is_named(name):
    program, told = MISMATCHES[name]
    with pytest.raises(
        RuntimeError, match="ranks call different operations .*" + told
    ):
        dpkit.sim.launch(program, 3)


# Each gives or takes what does not fit.
SIZES = {
    "all_gather": lambda: dist.all_gather([ones(3), ones(4)], ones(3)),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
        ones(5), ones(3)
    ),
    "reduce_scatter": lambda: dist.reduce_scatter(ones(3), [ones(3), ones(4)]),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(
        ones(3), ones(7)
    ),
    "all_to_all": lambda: dist.all_to_all(
        [ones(3), ones(4)], [ones(3), ones(3)]
    ),
    "scatter": lambda: dist.scatter(
        ones(3), one_on(0, [ones(3), ones(4)], None)
    ),
    "gather": lambda: dist.gather(
        ones(3), one_on(0, [ones(3), ones(4)], None)
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_do_not_fit_are_told(name):
    with pytest.raises(RuntimeError, match="given and what is taken differ"):
        dpkit.sim.launch(SIZES[name], 2)


# -- Ctrl-C


def go_on(where):
    """Run for ever; tell when the ranks are at it."""
    model = engine("ddp")
    x, y = own_rows()

    def tell(gradient):
        if dist.get_rank() == 1:
            print("at it", flush=True)
            end = time.monotonic() + 0.5
            while where == "backward" and time.monotonic() < end:
                pass  # the interrupt comes here
        return gradient

    while True:
        loss = loss_of(model(x), y)
        loss.register_hook(tell)
        loss.backward()


def be_interrupted(where):
    """What a child process does: the parent sends it an interrupt."""
    try:
        dpkit.sim.launch(go_on, 3, where)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print("threads:", [t.name for t in threading.enumerate()])
    print(dpkit.sim.launch(total, 2))


def start_child(forking, call):
    """Start a process that calls a function of this file, and hears Ctrl-C."""
    program = (
        "import signal; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from tests.runs.test_ranks_failures import *; {call}"
    )
    return start(forking, program)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_interrupt_ends_all_ranks(where, forking):
    with start_child(forking, f"be_interrupted({where!r})") as run:
        try:
            for _ in range(3 if where == "forward" else 1):
                assert run.stdout.readline() == "at it\n"
            time.sleep(0.1)
            run.send_signal(signal.SIGINT)
            rest = run.stdout.read()
        finally:
            run.kill()
    assert (
        rest.replace("at it\n", "")
        == "interrupted\nthreads: ['MainThread']\n[2.0, 2.0]\n"
    )


# -- after ranks a debugger can trace


def spin():
    """Run for ever, without an operation."""
    print("at it", flush=True)
    while True:
        pass


def operate():
    """Run for ever, with operations."""
    print("at it", flush=True)
    while True:
        torch.ones(1, device="sim")


def be_traced(program):
    """What a child process does: launch ranks, then trace a function."""
    try:
        dpkit.sim.launch(program, 2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    lines = []
    sys.settrace(lambda frame, event, _: lines.append(event))
    (lambda: None)()
    sys.settrace(None)
    print(lines)


LOCK = threading.Lock()


def wait_for_a_lock():
    """Wait in C, where a thread learns nothing."""
    if dist.get_rank() == 1:
        with LOCK:
            pass
    total()


def end_at_a_limit(is_traced):
    """What a child process does while it has the lock."""
    with LOCK:
        if is_traced:
            sys.settrace(lambda frame, event, _: None)
        try:
            dpkit.sim.launch(wait_for_a_lock, 2, idle_limit=0.5)
        except RuntimeError as error:
            print(*error.__notes__, flush=True)
        sys.settrace(lambda frame, event, _: None)
        (lambda: None)()
        sys.settrace(None)
        print("traced", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("is_traced", [False, True])
def test_tracing_goes_on_though_a_rank_waits(is_traced, forking):
    """On CPython 3.11 a debugger hung in such a launch, and after it."""
    with start_child(forking, f"end_at_a_limit({is_traced})") as run:
        try:
            told, _ = run.communicate()
        finally:
            run.kill()
    note, last = told.splitlines()
    assert note.startswith("rank 1 does not end: it waits in line ")
    assert last == "traced"


@pytest.mark.parametrize("program", ["total", "spin", "operate"])
def test_ranks_leave_nothing_on_which_tracing_hangs(program, forking):
    """On CPython 3.11 a debugger hung after any launch."""
    with start_child(forking, f"be_traced({program})") as run:
        try:
            if program != "total":
                assert run.stdout.readline() == "at it\n"
                run.send_signal(signal.SIGINT)
            told, _ = run.communicate()
        finally:
            run.kill()
    *interrupted, lines = told.splitlines()
    assert interrupted == ["interrupted"] * (program != "total")
    assert lines == "['call']"


# -- a rank leaves out what nobody waits for


def leave_out_what_nobody_awaits():
    x = torch.ones(1, device="sim")
    if dist.get_rank() != 1:
        dist.all_reduce(x, async_op=True)


def test_what_a_rank_left_out_is_named_at_the_end():
    error = error_of(leave_out_what_nobody_awaits, 3)
    expected = "a rank left out allreduce number 0 of group 0 (ranks that"
    assert str(error) == f"{expected} came: 0, 2)"


def leave_out_and_keep(groups):
    groups.append(dist.group.WORLD)
    if dist.get_rank() != 1:
        dist.all_reduce(ones(1000), async_op=True)


def test_a_group_that_is_kept_keeps_no_tensors():
    gc.collect()
    before, groups = torch.sim.memory_allocated(0), []
    error_of(lambda: leave_out_and_keep(groups), 3)
    assert len(groups) == 3
    assert torch.sim.memory_allocated(0) == before


# -- a group outside of its rank's program


def test_a_group_is_for_its_rank_while_that_runs():
    ddp = dpkit.sim.launch(wrapped_layer, 2)[0]
    x = torch.ones(1, 2, device="sim:0")
    with pytest.raises(RuntimeError, match="while that runs"):
        ddp(x).sum().backward()


def wrapped_layer():
    return DistributedDataParallel(torch.nn.Linear(2, 2).to("sim"))


def test_ranks_do_not_wrap_one_module():
    net = torch.nn.Linear(2, 2)

    def train():
        ddp = DistributedDataParallel(net)
        ddp(torch.ones(1, 2)).sum().backward()
        return net.weight.grad.sum().item()

    assert "two ranks wrap one module" in str(error_of(train, 2))
    assert dpkit.sim.launch(train, 1) == [4.0]


# -- cleaning up calls what other ranks do not


def fail_and_clean_up():
    try:
        if dist.get_rank() == 0:
            raise ValueError("root")
        dist.barrier()
    finally:
        dist.all_reduce(torch.ones(1, device="sim"))


def run_out_and_clean_up():
    try:
        if dist.get_rank() == 1:
            torch.empty(2**40, device="sim")
        dist.all_reduce(torch.ones(1, device="sim"))
    finally:
        dist.barrier()


def test_the_first_error_is_told_too():
    told = str(error_of(fail_and_clean_up, 2))
    assert "rank 0 waits in allreduce number 0" in told
    assert told.endswith("; rank 0 failed (ValueError: root)")
    told = str(error_of(run_out_and_clean_up, 2))
    assert "different operations" in told
    assert "; after OutOfMemoryError: sim out of memory" in told


# -- what a rank changes for itself


def leave_things_changed():
    torch.set_default_dtype(torch.float64)
    with loss_parallel():
        raise KeyError


def test_what_a_rank_changes_ends_with_it():
    rules = DTensor._op_dispatcher._custom_op_handlers
    before, number = torch.get_default_dtype(), len(rules)
    error_of(leave_things_changed, 2)
    assert torch.get_default_dtype() == before
    assert len(DTensor._op_dispatcher._custom_op_handlers) == number


# -- wrong arguments


def wrong_call(call):
    own, other = torch.ones(2, 2, device="sim:0"), torch.ones(4, device="cpu")
    sim, cpu = (
        x if dist.get_rank() == 0 else y
        for x, y in ((own, torch.ones(2, 2, device="sim:1")), (other, other))
    )
    call(sim, cpu)


WRONG_CALLS = {
    "not all on its device": lambda x, y: dist.all_gather_into_tensor(
        y.view(4, 1).expand(4, 2).contiguous(), x
    ),
    "rank 1: .* on the CPU": lambda x, y: dist.all_reduce(
        y if dist.get_rank() else x
    ),
    "differ in size or dtype": lambda x, y: dist.all_gather_into_tensor(
        torch.empty(4, 2, dtype=torch.int32, device="sim"), x
    ),
    "a list needs a tensor for each rank": lambda x, y: dist.all_gather(
        [torch.empty_like(x) for _ in range(3)], x
    ),
    "expects split_sizes|split_with_sizes": lambda x, y: (
        dist.all_to_all_single(x.new_empty(5), x.new_empty(5))
    ),
    "all_to_all of float32, rank 1: all_to_all of float64": lambda x, y: (
        dist.all_to_all_single(
            *(x.to((torch.float32, torch.float64)[dist.get_rank()]),) * 2
        )
    ),
}


@pytest.mark.parametrize("told", WRONG_CALLS)
def test_wrong_arguments_are_refused(told):
    assert re.search(told, str(error_of(wrong_call, 2, WRONG_CALLS[told])))


# -- what a torchrun script does


def end_as_a_script_does():
    rank = dist.get_rank()
    empty = torch.empty(0, device="sim")
    dist.all_to_all_single(torch.empty(0, device="sim"), empty)
    work = dist.all_reduce(torch.ones(1, device="sim"), async_op=True)
    while not work.is_completed():
        pass
    dist.destroy_process_group()
    return rank


def test_a_script_may_poll_and_destroy_its_group():
    assert dpkit.sim.launch(end_as_a_script_does, 3) == [0, 1, 2]


def poll_and_read(size):
    """Return how often nothing was there, the seconds, and the sums."""
    x = torch.full((size,), 1.0 + dist.get_rank(), device="sim")
    torch.sim.synchronize()
    begin = dpkit.sim.now()
    work = dist.all_reduce(x, async_op=True)
    count = 0
    while not work.is_completed():
        count += 1
        assert count < 100_000
    seconds = dpkit.sim.now() - begin
    return count, seconds, {*x[:3].tolist()}


def test_who_polls_reads_the_sum_when_it_is_there():
    """It takes the time of a wait, and reads nothing too early."""
    with dpkit.sim.machine(hosts="per_device"):
        for size in (3, 5_000_000):
            with dpkit.sim.trace(races=True) as timeline:
                polled = dpkit.sim.launch(poll_and_read, 2, size)
            assert timeline.races == []
            sent = [s for s in timeline.spans if s.kind == "copy"]
            slowest = max(s.end - s.start for s in sent)
            for count, seconds, values in polled:
                assert values == {3.0}
                assert (count > 100) == (size > 3)
                assert seconds > slowest


def poll_before_it_is_sent():
    """Return what polling says, where the other waits for this rank first."""
    rank = dist.get_rank()
    x, y = torch.zeros(2, device="sim"), torch.ones(2, device="sim")
    if rank == 1:
        dist.recv(x, 0)
        dist.send(5 * y, 0)
        return None
    begin, works = dpkit.sim.now(), dist.irecv(x, 1)
    before = [works.is_completed() for _ in range(3)]
    asked = dpkit.sim.now() - begin
    dist.send(y, 1)
    while not works.is_completed():
        pass
    return before, asked > 0, x.tolist()


def test_what_is_not_sent_yet_is_not_completed():
    found = dpkit.sim.launch(poll_before_it_is_sent, 2)
    assert found == [([False] * 3, True, [5.0, 5.0]), None]


def poll_for_ever():
    x = torch.zeros(2, device="sim")
    if dist.get_rank() == 1:
        dist.recv(x, 0)
    work = dist.irecv(x, 1)
    while not work.is_completed():
        pass


def test_a_rank_that_polls_for_ever_fails_if_none_can_go_on(monkeypatch):
    monkeypatch.setattr("dpkit.runs.ranks.works.PATIENCE", 1e-3)
    told = str(error_of(poll_for_ever, 2))
    assert "rank 0 waits in message 1 → 0, tag 0" in told
    assert "rank 1 waits in message 0 → 1, tag 0" in told


def time_itself():
    device, rank = torch.device("sim", dist.get_rank()), dist.get_rank()
    x = torch.ones(500, 500, device=device)
    torch.sim.synchronize(device)
    start = dpkit.sim.now()
    for _ in range(10 * (1 + rank)):
        x @ x
    torch.sim.synchronize(device)
    return dpkit.sim.now() - start


def test_a_rank_reads_its_own_clock():
    first, second = dpkit.sim.launch(time_itself, 2)
    assert 1.9 < second / first < 2.1


def wait_at_a_barrier():
    device = torch.device("sim", dist.get_rank())
    x = torch.ones(500, 500, device=device)
    y = x @ x @ x
    dist.barrier()
    assert torch.sim.current_stream(device).query()
    return y.shape


def test_a_barrier_waits_for_what_ranks_have_issued():
    dpkit.sim.launch(wait_at_a_barrier, 2)


def come_with_nothing_to_do():
    dist.barrier()
    before = dpkit.sim.now()
    dist.barrier()
    return dpkit.sim.now() - before


def test_a_barrier_of_idle_ranks_takes_no_time():
    assert dpkit.sim.launch(come_with_nothing_to_do, 2) == [0, 0]
