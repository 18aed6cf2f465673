"""Tests of dpkit.processes.shared_memory: values, refusals, what is left."""

import os
import platform
import re
import signal
import threading
import time
from functools import reduce
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from dpkit.processes import SharedAllreduce, Workers, mapping

OPS = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.bool]
CASES = [
    *((dtype, op) for dtype in FLOATS for op in OPS),
    *((dtype, op) for dtype in INTEGERS for op in ("sum", "max", "min")),
    (torch.complex64, "sum"),
    (torch.complex128, "mean"),
]
# A segment of 64 bytes holds 4 to 64 numbers: these end within, at and
# behind the ends of segments, and are fewer than the ranks.
LENGTHS = [0, 1, 2, 3, 5, 8, 16, 17, 65, 131]


def numbers(rank, dtype, shape):
    generator = torch.Generator().manual_seed(rank)
    whole = torch.randn(*shape, generator=generator, dtype=torch.complex128)
    return (7 * whole if dtype.is_complex else 7 * whole.real).to(dtype)


def in_order(op, terms):
    total = reduce(OPS[op], terms)
    return total / len(terms) if op == "mean" else total


# Functions that the ranks run.


def groups():
    """Make groups of the first 1, 2, … ranks; return those of this rank."""
    made = [
        dist.new_group(list(range(k + 1)))
        for k in range(dist.get_world_size())
    ]
    return made[dist.get_rank() :]


def all_cases():
    """Return the results of all cases, by size of the group."""
    found = {}
    for group in groups():
        allreduce = SharedAllreduce(group, segment_bytes=64)
        for dtype, op in CASES:
            for length in LENGTHS:
                x = numbers(dist.get_rank(), dtype, (length,))
                allreduce(x, op)
                found[group.size(), dtype, op, length] = x
    return found


def layouts(rank):
    x = numbers(rank, torch.complex128, (6, 10))
    return {
        "columns": x.real.clone()[:, 1:4],
        "transposed": x.real.clone().T,
        "scalar": x.real.clone()[0, 0],
        "conjugate": x.clone().conj(),
        "negative": x.clone().conj().imag,
        "leaf": x.real.clone().requires_grad_(),
    }


def all_layouts():
    """Return the results, each in a tensor of its own layout."""
    allreduce = SharedAllreduce(segment_bytes=128)
    tensors = layouts(dist.get_rank())
    before = {name: x.data_ptr() for name, x in tensors.items()}
    for x in tensors.values():
        allreduce(x)
    assert before == {name: x.data_ptr() for name, x in tensors.items()}
    found = {n: x.detach().resolve_conj() for n, x in tensors.items()}
    return found, tensors["columns"]._base


def many_calls(count):
    """Call with many sizes, the ranks in disorder; return what was wrong."""
    allreduce = SharedAllreduce(segment_bytes=64)
    rank, k = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 120, (count,), generator=generator).tolist()
    wrong = []
    for i, size in enumerate(sizes):
        x = torch.arange(size) * (rank + 1) + i
        if i % (7 + rank) == 0:
            time.sleep(0.0002 * rank)
        allreduce(x)
        wanted = torch.arange(size) * (k * (k + 1) // 2) + i * k
        if not torch.equal(x, wanted):
            wrong.append((i, size))
    return wrong


def different_calls():
    """Let rank 2 differ; return what is said, and that it works after."""
    allreduce, rank = SharedAllreduce(segment_bytes=64), dist.get_rank()
    is_2, told = rank == 2, []
    ones = [1] * 60  # of which a cut description shows the first
    for x, op in [
        (torch.ones(70 + 30 * is_2), "sum"),
        (torch.ones(0 if is_2 else 40), "sum"),
        (torch.ones(6).reshape(3, 2) if is_2 else torch.ones(2, 3), "sum"),
        (torch.ones(5).to([torch.float, torch.double][is_2]), "sum"),
        (torch.ones(5), ["mean", "max"][is_2]),
        (torch.ones(*ones, *([2, 1] if is_2 else [1, 2])), "sum"),
    ]:
        with pytest.raises(ValueError, match="do not make the same") as caught:
            allreduce(x, op)
        told.append(str(caught.value))
        y = torch.arange(33.0)
        allreduce(y)
        assert torch.equal(y, torch.arange(33.0) * dist.get_world_size())
    return told


def miss(absent):
    """Let some ranks stay away; return what the others say."""
    allreduce, x = SharedAllreduce(timeout_seconds=0.5), torch.ones(3)
    allreduce(x)
    told = None
    if dist.get_rank() not in absent:
        with pytest.raises((TimeoutError, RuntimeError)) as caught:
            allreduce(x)
        told = str(caught.value)
    dist.barrier()
    return told


def go_on_after(how):
    """Let rank 0 give up on a call that others come to late; go on."""
    allreduce = SharedAllreduce(segment_bytes=64, timeout_seconds=0.5)
    rank, told = dist.get_rank(), []
    x = torch.full((70,), rank + 1.0)
    allreduce(x)
    if rank > 0:
        time.sleep(1)
    elif how == "ctrl-c":
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    for _ in range(3):
        try:
            allreduce(x)
        except (TimeoutError, RuntimeError, KeyboardInterrupt) as error:
            told.append(f"{type(error).__name__}: {error}")
    dist.barrier()
    return told


def by_messages():
    """Return the results of many calls, and what is said of one missed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "riscv64")
        wrong = many_calls(40)
        allreduce = SharedAllreduce(timeout_seconds=0.5)
    if dist.get_rank() == 1:
        time.sleep(1)
        return wrong, None
    with pytest.raises(TimeoutError) as caught:
        allreduce(torch.ones(3))
    return wrong, str(caught.value)


def by_a_file():
    """Map as on a system that has no memory without a name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping, "sys", SimpleNamespace(platform="darwin"))
        return many_calls(40)


def on_another_host():
    with pytest.MonkeyPatch.context() as patch:
        if dist.get_rank() == 1:
            patch.setattr(mapping, "_host", lambda: "elsewhere")
        with pytest.raises(ValueError, match="not on one host") as caught:
            SharedAllreduce()
    return str(caught.value)


def end_in_the_middle():
    allreduce, x = SharedAllreduce(), torch.ones(2**20)
    for i in range(100):
        if i == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        allreduce(x)


def refusals():
    """Return what is said of calls that cannot be right."""
    allreduce, told = SharedAllreduce(), []
    for x, op in [
        (torch.ones(2), "product"),
        (torch.ones(2, dtype=torch.int32), "mean"),
        (torch.ones(2, dtype=torch.complex64), "max"),
        (torch.ones(2, dtype=torch.complex64), "min"),
        (torch.ones(2, device="meta"), "sum"),
        (torch.ones(2).to_sparse(), "sum"),
    ]:
        with pytest.raises(ValueError, match=r"\(") as caught:
            allreduce(x, op)
        told.append(str(caught.value))
    for size in (0, -64, 100):
        with pytest.raises(ValueError, match=f"segment_bytes: {size}"):
            SharedAllreduce(segment_bytes=size)
    alone = dist.new_group([0])
    if dist.get_rank() > 0:
        with pytest.raises(ValueError, match="not a rank of the group"):
            SharedAllreduce(alone)
    return told


@pytest.fixture(scope="module")
def workers(forked_ranks):
    with Workers(4, "gloo") as workers:
        yield workers


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """After each test: no file where files for sharing would lie."""
    before = set(os.listdir("/dev/shm"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert set(os.listdir("/dev/shm")) == before
    assert os.listdir(tmp_path) == []


def test_all_cases(workers):
    results = workers.run(all_cases)
    for rank, found in enumerate(results):
        sizes = range(rank + 1, 5)
        assert len(found) == len(sizes) * len(CASES) * len(LENGTHS)
        for (k, dtype, op, length), x in found.items():
            terms = [numbers(r, dtype, (length,)) for r in range(k)]
            wanted = in_order(op, terms)
            assert x.dtype == wanted.dtype
            assert torch.equal(x, wanted), (rank, k, dtype, op, length)


def test_layouts(workers):
    results = workers.run(all_layouts)
    terms = [layouts(rank) for rank in range(4)]
    wanted = {
        name: reduce(torch.add, (tensors[name] for tensors in terms))
        for name in terms[0]
    }
    for (found, base), own in zip(results, terms):
        for name, x in found.items():
            assert torch.equal(x, wanted[name].detach().resolve_conj()), name
        # What lies beside the columns is as it was.
        own["columns"][:] = wanted["columns"]
        assert torch.equal(base, own["columns"]._base)


def test_many_calls_in_disorder(workers):
    assert workers.run(many_calls, 200) == [[]] * 4


def test_different_calls(workers):
    results = workers.run(different_calls)
    assert len(set(map(tuple, results))) == 1
    assert results[0][0].endswith(
        "(rank 0: sum, torch.float32, (70,); rank 2: sum, torch.float32, "
        "(100,))"
    )
    assert "(2, 3); rank 2: sum, torch.float32, (3, 2)" in results[0][2]
    assert results[0][3].endswith("rank 2: sum, torch.float64, (5,))")
    assert results[0][4].endswith("rank 2: max, torch.float32, (5,))")
    assert re.search(r", 1, .*\.\.\. sha256 [0-9a-f]{16}\)$", results[0][5])


def test_who_is_missing(workers):
    results = workers.run(miss, [1, 3])
    late = (
        "some ranks did not come to the barrier in time (ranks: 1, 3 of 4, "
        "timeout_seconds: 0.5)"
    )
    gave_up = (
        "some ranks gave up, in this call or before (ranks: {} of 4, had not "
        "come: 1, 3)"
    )  # the rank whose time is over first makes the other one give up
    assert results[1::2] == [None, None]
    assert late in results
    assert results[0] in (late, gave_up.format(2))
    assert results[2] in (late, gave_up.format(0))


@pytest.mark.parametrize("how", ["timeout", "ctrl-c"])
def test_no_way_on_from_a_call_that_was_broken_off(workers, how):
    results = workers.run(go_on_after, how)
    refused = (
        "RuntimeError: an earlier call was broken off, so ranks may be in "
        "different calls; make a new SharedAllreduce, in a new group"
    )
    for rank, told in enumerate(results):
        assert len(told) == 3
        assert told[1:] == [refused] * 2
        if rank == 0:
            error = {"timeout": "TimeoutError", "ctrl-c": "KeyboardInterrupt"}
            assert told[0].startswith(error[how])
        else:
            gave_up = r"RuntimeError: some ranks gave up, .* \(ranks: 0.* of 4"
            assert re.match(gave_up, told[0])


def test_other_processors(workers):
    results = workers.run(by_messages)
    assert [wrong for wrong, _ in results] == [[]] * 4
    assert "Ranks 1 failed" in results[0][1]  # it alone knows which


def test_systems_without_memory_files(workers, tmp_path):
    assert workers.run(by_a_file) == [[]] * 4


def test_two_hosts(workers):
    results = workers.run(on_another_host)
    assert len(set(results)) == 1
    assert "not on one host (hosts: " in results[0]
    assert "elsewhere" in results[0]


@pytest.mark.slow
def test_a_rank_that_is_killed(forked_ranks):
    with Workers(2, "gloo") as workers:
        told = r"rank: 1 of 2, signal: 9, Killed\)\n\nrank 1 was last seen "
        with pytest.raises(RuntimeError, match=told):
            workers.run(end_in_the_middle)


def test_refusals(workers):
    for told in workers.run(refusals):
        op, mean, most, least, device, layout = told
        assert op == "unknown op (op: 'product', known: sum, mean, max, min)"
        assert mean == "integers have no exact mean (dtype: torch.int32)"
        assert most == least
        assert most == "complex numbers have no order (dtype: torch.complex64)"
        assert "(device: meta, layout: torch.strided)" in device
        assert "(device: cpu, layout: torch.sparse_coo)" in layout
