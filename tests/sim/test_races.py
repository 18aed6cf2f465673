"""A trace that looks for races: it finds those planted, and no others."""

import inspect
import re
import sys
import sysconfig
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch.nn import functional as F
from traitlets.config import Config

import dpkit
import dpkit.streams
from dpkit.data_parallel import BucketedDataParallel
from dpkit.sharding import Zero1, Zero2, Zero3
from dpkit.sim import places
from dpkit.sim.clock.order import HappensBefore

ZERO, ONE = dpkit.devices(2, "sim")
SIZE = 50


def races_of(program, *args, **kwargs):
    """Return the races of a program, on streams that nothing has named yet."""
    fresh = dpkit.sim.machine()
    with fresh, dpkit.sim.trace(races=True) as timeline:
        program(*args, **kwargs)
    return timeline.races


def ones(device=ZERO):
    return torch.ones(SIZE, SIZE, device=device)


def current(device=ZERO):
    return torch.sim.current_stream(device)


# -- planted faults, each beside what would be right

# A program takes whether it is to be right. What is told of the wrong one:
# what the first use does, its name and its line; and those of the second.


def missing_wait(right):
    side = torch.sim.Stream(ZERO)
    y = ones() @ ones()
    if right:
        side.wait_stream(current())
    with torch.sim.stream(side):
        z = y + 1
    y.record_stream(side)
    return z


def wrong_stream(right):
    side, other = torch.sim.Stream(ZERO), torch.sim.Stream(ZERO)
    y = ones() @ ones()
    (side if right else other).wait_stream(current())
    with torch.sim.stream(side):
        z = y.to(ONE)
    y.record_stream(side)
    return z


def event_too_early(right):
    side, event = torch.sim.Stream(ZERO), torch.sim.Event()
    x = ones()
    event.record()
    x.mul_(2)
    if right:
        event.record()
    side.wait_event(event)
    with torch.sim.stream(side):
        z = x + 1
    x.record_stream(side)
    return z


def event_of_another_device(right):
    side = torch.sim.Stream(ZERO)
    y = ones() @ ones()
    event = current(ZERO if right else ONE).record_event()
    side.wait_event(event)
    with torch.sim.stream(side):
        z = y + 1
    y.record_stream(side)
    return z


def arrival_not_awaited(right):
    sending, receiving = torch.sim.Stream(ZERO), torch.sim.Stream(ONE)
    x = ones()
    sending.wait_stream(current())
    with torch.sim.stream(sending), torch.sim.stream(receiving):
        y = x.to(ONE)
    if right:
        current(ONE).wait_stream(receiving)
    z = y + 1
    x.record_stream(sending)
    y.record_stream(current(ONE))
    return z


def written_while_it_is_sent(right):
    sending, receiving = torch.sim.Stream(ZERO), torch.sim.Stream(ONE)
    buffer, target = ones(), ones(ONE)
    sending.wait_stream(current())
    receiving.wait_stream(current(ONE))
    with torch.sim.stream(sending), torch.sim.stream(receiving):
        target.copy_(buffer)
    if right:
        current().wait_stream(sending)
    buffer.zero_()
    buffer.record_stream(sending)
    target.record_stream(receiving)


def written_by_two_streams(right):
    side, total = torch.sim.Stream(ZERO), ones()
    side.wait_stream(current())
    with torch.sim.stream(side):
        total[3:].add_(1)
    first = total[:3] if right else total[:4]
    first.mul_(2)
    total.record_stream(side)


def record_stream_forgotten(right):
    side, y = torch.sim.Stream(ZERO), ones()
    side.wait_stream(current())
    with torch.sim.stream(side):
        z = y + 1
    if right:
        y.record_stream(side)
    del y
    return z, ones()


def recorded_before_it_waits(right):
    """The other stream has waited for the use, or only for what was before."""
    side, other, y = torch.sim.Stream(ZERO), torch.sim.Stream(ZERO), ones()
    side.wait_stream(current())
    if not right:
        other.wait_stream(side)
    with torch.sim.stream(side):
        z = y + 1
    if right:
        other.wait_stream(side)
    y.record_stream(other)
    del y
    return z, ones()


def recorded_but_waits_when_it_is_freed(right):
    """The allocator waits for what the stream had when memory was freed."""
    side, other, y = torch.sim.Stream(ZERO), torch.sim.Stream(ZERO), ones()
    side.wait_stream(current())
    with torch.sim.stream(side):
        z = y + 1
    y.record_stream(other)
    if right:
        other.wait_stream(side)
    del y
    other.wait_stream(side)
    return z, ones()


def freed_too_early(right):
    side, y = torch.sim.Stream(ZERO), ones()
    side.wait_stream(current())
    with torch.sim.stream(side):
        z = y + 1
    if right:
        current().wait_stream(side)
    y.untyped_storage().resize_(0)
    return z, ones()


def host_reads_too_early(right):
    y = (ones() @ ones()).to("cpu", non_blocking=True)
    if right:
        torch.sim.synchronize(ZERO)
    return y.sum()


def host_writes_too_early(right):
    batch = torch.ones(SIZE, SIZE).pin_memory()
    x = batch.to(ZERO, non_blocking=True)
    if right:
        copied = torch.sim.Event()
        copied.record(current())
        copied.synchronize()
    batch.zero_()
    return x


def gradient_read_too_early(right):
    side, w = torch.sim.Stream(ZERO), ones().requires_grad_()
    (w * 2).sum().backward()
    if right:
        side.wait_stream(current())
    with torch.sim.stream(side):
        z = w.grad + 1
    w.grad.record_stream(side)
    return z


def statistics_read_too_early(right):
    side, norm = torch.sim.Stream(ZERO), nn.BatchNorm1d(SIZE).to(ZERO)
    norm(ones())
    if right:
        side.wait_stream(current())
    with torch.sim.stream(side):
        z = norm.running_mean + 1
    norm.running_mean.record_stream(side)
    return z


FAULTS = {
    missing_wait: (
        ("writes", "mm", "compute", "y = ones() @ ones()"),
        ("reads", "add", "stream", "z = y + 1"),
    ),
    wrong_stream: (
        ("writes", "mm", "compute", "y = ones() @ ones()"),
        ("reads", "copy to sim:1", "stream", "z = y.to(ONE)"),
    ),
    event_too_early: (
        ("writes", "mul_", "compute", "x.mul_(2)"),
        ("reads", "add", "stream", "z = x + 1"),
    ),
    event_of_another_device: (
        ("writes", "mm", "compute", "y = ones() @ ones()"),
        ("reads", "add", "stream", "z = y + 1"),
    ),
    arrival_not_awaited: (
        ("writes", "copy to sim:1", "stream", "y = x.to(ONE)"),
        ("reads", "add", "compute", "z = y + 1"),
    ),
    written_while_it_is_sent: (
        ("reads", "copy to sim:1", "stream", "target.copy_(buffer)"),
        ("writes", "zero_", "compute", "buffer.zero_()"),
    ),
    written_by_two_streams: (
        ("writes", "add_", "stream", "total[3:].add_(1)"),
        ("writes", "mul_", "compute", "first.mul_(2)"),
    ),
    record_stream_forgotten: (
        ("reads", "add", "stream", "z = y + 1"),
        ("frees", "", "compute", "del y"),
    ),
    recorded_before_it_waits: (
        ("reads", "add", "stream", "z = y + 1"),
        ("frees", "", "compute", "del y"),
    ),
    recorded_but_waits_when_it_is_freed: (
        ("reads", "add", "stream", "z = y + 1"),
        ("frees", "", "compute", "del y"),
    ),
    freed_too_early: (
        ("reads", "add", "stream", "z = y + 1"),
        ("frees", "", "compute", "y.untyped_storage().resize_(0)"),
    ),
    host_reads_too_early: (
        ("writes", "copy to cpu", "compute", 'y = (ones() @ ones()).to("cpu"'),
        ("reads", "sum", "python", "return y.sum()"),
    ),
    host_writes_too_early: (
        ("reads", "copy to sim:0", "compute", "x = batch.to(ZERO"),
        ("writes", "zero_", "python", "batch.zero_()"),
    ),
    gradient_read_too_early: (
        ("writes", "mul", "compute", "(w * 2).sum().backward()"),
        ("reads", "add", "stream", "z = w.grad + 1"),
    ),
    statistics_read_too_early: (
        ("writes", "native_batch_norm", "compute", "norm(ones())"),
        ("reads", "add", "stream", "z = norm.running_mean + 1"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_told_with_both_uses(fault):
    (race,) = races_of(fault, right=False)
    lines, start = inspect.getsourcelines(fault)
    for use, expected in zip((race.first, race.second), FAULTS[fault]):
        what, name, stream, code = expected
        assert (use.what, use.name) == (what, name)
        assert use.stream.startswith(stream)
        assert use.code.startswith(code)
        number = next(i for i, line in enumerate(lines) if code in line)
        assert use.line == f"test_races.py:{start + number}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_right_version_has_no_race(fault):
    assert races_of(fault, right=True) == []


def test_a_race_says_what_it_is():
    (race,) = races_of(missing_wait, right=False)
    first, second = race.first, race.second
    assert str(race) == (
        f"mm writes on sim:0, compute: {first.line}\n"
        "    y = ones() @ ones()\n"
        f"add reads on sim:0, {second.stream}: {second.line}\n"
        "    z = y + 1"
    )


def test_a_line_of_dpkit_is_told_beside_that_of_the_program():
    def program():
        channel = dpkit.streams.Channel(ZERO, ONE)
        return channel.send(ones()).x + 1

    (race,) = races_of(program)
    assert re.fullmatch(
        r"test_races\.py:\d+ \(dpkit/streams\.py:\d+\)", race.first.line
    )
    assert re.fullmatch(r"test_races\.py:\d+", race.second.line)
    assert race.first.code == race.second.code


def test_a_line_of_a_cell_is_told_without_its_number():
    config = Config({"HistoryManager": {"enabled": False}})  # has a thread
    shell = InteractiveShell.instance(config=config)
    try:
        shell.user_ns["races_of"] = races_of
        shell.run_cell(
            "def early():\n"
            "    y = torch.ones(3, device='sim').to('cpu', None, True)\n"
            "    return y.sum()\n"
            "import torch\n"
            "races = races_of(early)",
            store_history=True,
        )
        (race,) = shell.user_ns["races"]
    finally:
        InteractiveShell.clear_instance()
    assert (race.first.line, race.second.line) == ("a cell:2", "a cell:3")
    assert race.second.code == "return y.sum()"


def test_only_a_trace_that_looks_for_races_lists_them():
    with dpkit.sim.trace() as timeline:
        missing_wait(right=False)
    assert timeline.races is None
    assert "races" not in repr(timeline)
    with dpkit.sim.trace(races=True) as timeline:
        missing_wait(right=False)
    assert "races: 1" in repr(timeline)


def test_a_missing_wait_in_a_loop_is_told_once():
    def loop():
        for _ in range(3):
            missing_wait(right=False)

    assert len({str(race) for race in races_of(loop)}) == 3  # three streams
    side, y = torch.sim.Stream(ZERO), ones()

    def on_one_stream():
        for _ in range(3):
            y.add_(1)
            with torch.sim.stream(side):
                y.sum()

    told = {(r.first.name, r.second.name) for r in races_of(on_one_stream)}
    assert told == {("add_", "sum"), ("sum", "add_")}
    assert len(races_of(on_one_stream)) == 2


# -- what is memory of its own


@pytest.mark.parametrize(
    ("one", "other", "is_race"),
    [
        (lambda x: x[:3], lambda x: x[3:], False),
        (lambda x: x[:4], lambda x: x[3:], True),
        (lambda x: x[:, 1:3], lambda x: x[:, 3:5], False),
        (lambda x: x[:, 1:4], lambda x: x[:, 3:5], True),
        (lambda x: x[::2], lambda x: x[1::2], False),
        (lambda x: x[:, 2], lambda x: x[:, 3], False),
        (lambda x: x.t()[3:], lambda x: x[:, :3], False),
        (lambda x: x.t()[3:], lambda x: x[5:], True),
        (lambda x: x.view(torch.uint8)[:, :4], lambda x: x[:, 1], False),
        (lambda x: x.view(torch.uint8)[:, :5], lambda x: x[:, 1], True),
        (lambda x: x[:0], lambda x: x, False),
    ],
)
def test_views_race_where_they_have_a_byte_in_common(one, other, is_race):
    x = torch.zeros(7, 6, device=ZERO)
    side = torch.sim.Stream(ZERO)

    def program():
        one(x).zero_()
        with torch.sim.stream(side):
            other(x).zero_()

    assert bool(races_of(program)) == is_race


@pytest.mark.parametrize("is_race", [True, False])
def test_what_is_expanded_has_the_bytes_of_one(is_race):
    x, side = torch.zeros(7, 6, device=ZERO), torch.sim.Stream(ZERO)

    def program():
        x[:, 2:3].expand(7, 4).sum()
        with torch.sim.stream(side):
            x[:, 2 if is_race else 3].zero_()

    assert bool(races_of(program)) == is_race


def test_two_reads_are_no_race():
    x, side = ones(), torch.sim.Stream(ZERO)

    def program():
        x.sum()
        with torch.sim.stream(side):
            x.sum()

    assert races_of(program) == []


def test_a_write_beside_another_does_not_hide_it():
    x, side = ones(), torch.sim.Stream(ZERO)

    def program():
        with torch.sim.stream(side):
            x[:3].zero_()
            x[3:].fill_(2)
        x[:3].sum()

    (race,) = races_of(program)
    assert (race.first.name, race.second.name) == ("zero_", "sum")


def test_a_read_races_with_a_write_behind_a_later_read():
    """The later read stands for no write, nor for a read elsewhere."""
    x, side, other = ones(), torch.sim.Stream(ZERO), torch.sim.Stream(ZERO)

    def program():
        with torch.sim.stream(side):
            x.sum()
        with torch.sim.stream(other):
            x.mean()
        current().wait_stream(other)
        x.zero_()

    (race,) = races_of(program)
    assert (race.first.name, race.second.name) == ("sum", "zero_")


# -- what orders


def test_what_the_host_waits_for_is_before_all_that_it_issues():
    def waiting(wait):
        y, side = ones() @ ones(), torch.sim.Stream(ONE)
        sending = torch.sim.Stream(ZERO)
        wait(y)
        with torch.sim.stream(sending), torch.sim.stream(side):
            z = y.to(ONE)
        y.record_stream(sending)
        return z

    waits = [
        lambda y: torch.sim.synchronize(ZERO),
        lambda y: current().synchronize(),
        lambda y: y.sum().item(),
        lambda y: y.cpu(),
        lambda y: y[y > 0],
        lambda y: repr(y),
        lambda y: dpkit.synchronize([ZERO]),
    ]
    for wait in waits:
        assert races_of(waiting, wait) == []
    goes_on = [
        lambda y: torch.sim.synchronize(ONE),
        lambda y: current(ONE).synchronize(),
        lambda y: y.to("cpu", non_blocking=True),
        lambda y: ones(ONE).sum().item(),
    ]
    for wait in goes_on:
        assert len(races_of(waiting, wait)) == 1


def test_a_query_orders_only_if_it_is_done():
    def asking(synchronize):
        side, y = torch.sim.Stream(ZERO), ones() @ ones()
        event = current().record_event()
        if synchronize:  # with sim:1, which is busy for longer
            torch.ones(1000, 1000, device=ONE).cumsum(0)
            torch.sim.synchronize(ONE)
        assert event.query() == synchronize
        with torch.sim.stream(side):
            z = y + 1
        y.record_stream(side)
        return z

    assert races_of(asking, True) == []
    assert len(races_of(asking, False)) == 1


@pytest.mark.parametrize("returns", [True, False])
def test_a_copy_is_a_barrier_on_both_current_streams(returns):
    """What either stream has before it is before what either has after."""

    def program():
        there, side = ones(ONE), torch.sim.Stream(ZERO)
        with torch.sim.stream(side):
            before = ones()
            there.copy_(before)
        if returns:
            there.to(ZERO)
        return before + 1

    assert len(races_of(program)) == (0 if returns else 1)


@pytest.mark.parametrize("copies", [True, False])
def test_a_copy_makes_its_source_wait_for_what_the_target_had(copies):
    x, there = ones(), ones(ONE)
    sending, leaving = torch.sim.Stream(ZERO), torch.sim.Stream(ONE)

    def program():
        there.zero_()
        with torch.sim.stream(sending):
            if copies:
                x.to(ONE)
            with torch.sim.stream(leaving):
                there.to(ZERO)

    assert len(races_of(program)) == (0 if copies else 1)


@pytest.mark.parametrize("meet", [True, False])
def test_hosts_that_meet_know_what_the_others_waited_for(meet):
    def program():
        buffer = ones().to("cpu", non_blocking=True)
        torch.sim.synchronize(ZERO)  # the host of sim:0 waits
        if meet:
            dpkit.sim.meet([ZERO, ONE])
        return buffer.to(ONE, non_blocking=True)

    with dpkit.sim.machine(hosts="per_device"):
        assert len(races_of(program)) == (0 if meet else 1)


def test_backward_runs_in_the_streams_of_forward():
    """As on CUDA: there it finds what forward has left for it."""
    w, side = ones().requires_grad_(), torch.sim.Stream(ZERO)

    def program():
        with torch.sim.stream(side):
            loss = (w.exp() * 2).sum()  # exp keeps its result for backward
        loss.backward()
        w.grad.zero_()

    assert races_of(program) == []


def test_the_current_stream_waits_for_the_end_of_backward():
    w, side = ones().requires_grad_(), torch.sim.Stream(ZERO)

    def program():
        with torch.sim.stream(side):
            loss = (w.exp() * 2).sum()
        (gradient,) = torch.autograd.grad(loss, w)
        gradient.zero_()

    assert races_of(program) == []


def test_a_hook_of_backward_may_leave_the_streams_of_forward():
    w, side = ones().requires_grad_(), torch.sim.Stream(ZERO)

    def program(right):
        def add_up(gradient):
            if right:
                side.wait_stream(current())
            with torch.sim.stream(side):
                total.add_(gradient)
            gradient.record_stream(side)

        total = torch.zeros_like(w)
        side.wait_stream(current())
        handle = w.register_hook(add_up)
        (w * 3).sum().backward()
        current().wait_stream(side)
        handle.remove()

    assert races_of(program, True) == []
    (race,) = races_of(program, False)
    assert race.second.name == "add_"


def test_a_device_that_waits_for_all_it_is_asked_has_no_races():
    with dpkit.sim.machine(accelerator="laptop-cpu"):
        assert races_of(missing_wait, right=False) == []


def test_order_is_lamports():
    order = HappensBefore(2, host_of=lambda device: device)
    a, b, c = (0, 0), (1, 0), (1, 1)
    assert order.issue([a, b]) == {a: 1, b: 1}
    order.issue([a])
    assert order.past(b) == {a: 1, b: 1}
    assert order.past(c) == {}
    order.host_waits(0, order.past(a))
    assert order.past(c) == {}
    order.join_hosts([0, 1])
    assert order.past(c) == {a: 2, b: 1}
    assert order.past_of_device(1) == {a: 2, b: 1}


def test_a_parameter_on_the_host_is_looked_at():
    p = torch.nn.Parameter(torch.ones(5).pin_memory())
    with dpkit.sim.trace(races=True) as timeline, torch.no_grad():
        x = p.detach().to("sim:0", non_blocking=True)
        p.add_(1)
    (race,) = timeline.races
    assert (race.second.device, race.second.name) == ("host", "add_")
    assert x.device.type == "sim"


# -- the engines of dpkit (those of PyTorch: test_engines_on_ranks)

ALGORITHMS = [
    "star",
    "tree",
    "ring",
    "recursive_doubling",
    "halving_doubling",
    "hierarchical",
    "library",
]


def layers(count=4, width=16):
    return [nn.Linear(width, width) for _ in range(count)]


def batch(width=16):
    return torch.randn(12, width), torch.randn(12, width)


def sums(algorithm, size=101):
    more = {"ranks_per_node": 2} if algorithm == "hierarchical" else {}
    for _ in range(2):
        tensors = [
            torch.full((size,), 1.0, device=d) for d in dpkit.devices(4, "sim")
        ]
        dpkit.allreduce(tensors, algorithm=algorithm, **more)
        del tensors


def pipeline(schedule):
    parts = 4 if schedule == "interleaved" else 2
    stages = dpkit.split_layers(nn.Sequential(*layers()), parts)
    engine = dpkit.Pipeline(stages, [ZERO, ONE], schedule, 4)
    for _ in range(2):
        engine.forward_backward(*batch(), F.mse_loss)


def bucketed(**options):
    model = nn.Sequential(*layers())
    engine = BucketedDataParallel(
        model, dpkit.devices(3, "sim"), bucket_megabytes=0.001, **options
    )
    for _ in range(2):
        engine.forward_backward(*batch(), F.mse_loss)


def zero(kind, **options):
    engine = kind(
        layers(),
        dpkit.devices(3, "sim"),
        lambda shards: torch.optim.Adam(shards, lr=0.1),
        **options,
    )
    for _ in range(2):
        engine.forward_backward(*batch(), F.mse_loss)
        engine.step()


def replicas():
    model = dpkit.DataParallel(
        nn.Sequential(*layers()).to(ZERO), dpkit.devices(3, "sim")
    )
    for _ in range(2):
        X, y = (t.to(ZERO) for t in batch())
        F.mse_loss(model(X), y).backward()


def copies():
    channel = dpkit.streams.Channel(ZERO, ONE)
    for _ in range(3):
        x = ones() @ ones()
        sent, also = channel.send(x), dpkit.streams.send(x, ONE)
        del x
        y = sent.wait() + also.wait()
        dpkit.streams.send(y, ZERO, ones()).wait()
        del y
        z = dpkit.streams.receive(torch.ones(SIZE).pin_memory(), ZERO)
        z += 1


def one_way():
    channel = dpkit.streams.Channel(ZERO, ONE)
    for _ in range(2):
        y = channel.send(ones()).wait() + 1
        del y


def into_used():
    x, there = ones(), ones(ONE)
    there @ there
    dpkit.streams.send(x, ONE, there).wait()


def never_waited_for():
    dpkit.streams.send(ones(), ONE, ones(ONE))
    return ones(), ones(ONE)


RIGHT = {
    **{f"allreduce, {name}": partial(sums, name) for name in ALGORITHMS},
    **{
        f"pipeline, {name}": partial(pipeline, name)
        for name in ("naive", "gpipe", "1f1b", "interleaved", "zb-h1")
    },
    "bucketed": bucketed,
    "bucketed, no overlap": partial(bucketed, overlap=False),
    "bucketed, library": partial(bucketed, algorithm="library"),
    "zero 1": partial(zero, Zero1),
    "zero 2": partial(zero, Zero2),
    "zero 3": partial(zero, Zero3),
    "zero 3, just in time": partial(zero, Zero3, gather="just in time"),
    "zero 3, too late": partial(zero, Zero3, gather="too late"),
    "zero 3, library": partial(zero, Zero3, algorithm="library"),
    "data parallel": replicas,
    "copies": copies,
    "copies, one way": one_way,
    "copies into what is used": into_used,
    "copies never waited for": never_waited_for,
}


@pytest.mark.parametrize("name", RIGHT)
def test_engines_of_dpkit_have_no_races(name):
    assert races_of(RIGHT[name]) == []


# What is taken out of dpkit.streams -> a program that needs it.
PLANTED = {
    "        sending.wait_stream(_current(self.source))\n": copies,
    "            stream.wait_event(self.arrived)\n": copies,
    "            self.x.record_stream(stream)\n": one_way,
    "    x.record_stream(sending)\n": never_waited_for,
    "            into.record_stream(receiving)\n": never_waited_for,
    "    sender.sending.wait_stream(_current(source))\n": copies,
    "    receiver.receiving.wait_stream(_current(target))\n": into_used,
    "            streams.side.wait_event(event)\n": bucketed,
    "        _current(device).wait_stream(streams.side)\n": bucketed,
}


@pytest.fixture
def without(monkeypatch):
    """Have ``dpkit.streams`` without a line, wherever it is used."""
    original = dpkit.streams

    def take_out(line):
        source = inspect.getsource(original)
        assert source.count(line) == 1
        indent = line[: len(line) - len(line.lstrip())]
        changed = ModuleType(original.__name__)
        changed.__file__ = original.__file__
        monkeypatch.setitem(sys.modules, original.__name__, changed)
        text = source.replace(line, f"{indent}pass\n")
        exec(compile(text, original.__file__, "exec"), vars(changed))
        for name, module in list(sys.modules.items()):
            if name.startswith(("dpkit", __name__)) and module is not changed:
                for key, value in list(vars(module).items()):
                    if value is original:
                        monkeypatch.setattr(module, key, changed)
                    elif is_of(original, value):
                        monkeypatch.setattr(module, key, vars(changed)[key])

    return take_out


def is_of(module, value):
    home = getattr(value, "__module__", None)
    return home == module.__name__ and callable(value)


@pytest.mark.parametrize("line", PLANTED, ids=str.strip)
def test_a_line_taken_out_of_streams_is_missed(line, without):
    without(line)
    races = races_of(PLANTED[line])
    assert races
    for use in [use for race in races for use in (race.first, race.second)]:
        assert re.match(
            r"test_races\.py:\d+( \(dpkit/.*\.py:\d+\))?$", use.line
        )


def test_an_installed_package_may_count_as_program(monkeypatch):
    lab = ModuleType("lab")
    lab.IS_PROGRAM = True
    monkeypatch.setitem(sys.modules, "lab", lab)
    installed = Path(sysconfig.get_path("purelib"))
    assert places._kind(str(installed / "lab/a.py"), "lab") == "program"
    assert places._kind(str(installed / "torch/a.py"), "torch") == ""
    assert places._kind("/home/reader/train.py", "__main__") == "program"
