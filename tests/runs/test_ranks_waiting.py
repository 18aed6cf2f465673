"""Ranks that wait for each other outside of an operation of their group.

In the store they let another rank run. Elsewhere the rank is named, and Ctrl-C
ends the launch.
"""

import queue
import re
import signal
import sys
import threading
import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import dpkit
from dpkit.runs.ranks import watching
from dpkit.sim.devices.configuration import simulation
from tests.forked_python import start
from tests.runs.asleep import wait_until_it_waits

SHORT = timedelta(seconds=1)


def the_store():
    return distributed_c10d._get_default_store()


def rank_is(number):
    return dist.get_rank() == number


def total():
    x = torch.ones(1, device="sim")
    dist.all_reduce(x)
    return x.item()


def error_of(program, k):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(program, k)
    return str(caught.value)


# -- the store


def get_before_set():
    if rank_is(0):
        return the_store().get("k")
    return the_store().set("k", "1")


def wait_for_two():
    if rank_is(0):
        the_store().wait(["k1", "k2"], SHORT)
        return the_store().multi_get(["k1", "k2"])
    return the_store().set(f"k{dist.get_rank()}", b"\x00\xff")


def wait_in_the_store_of_a_group():
    pair = dist.new_group([0, 1])
    if rank_is(2):
        return None
    store = distributed_c10d._get_process_group_store(pair)
    if rank_is(0):
        return store.get("k")
    return store.multi_set(["k", "l"], ["2", "3"])


def meet_in_the_store():
    """Do what PyTorch does at its own barrier of a store."""
    rank, k = dist.get_rank(), dist.get_world_size()
    distributed_c10d._store_based_barrier(rank, the_store(), "x", k, SHORT)
    if hasattr(the_store(), "barrier"):  # torch 2.11 has none
        the_store().barrier("y", k)
    return the_store().add("z", 1)


def ask_for_a_counter():
    store = the_store()
    store.add("n", 1)
    while store.add("n", 0) < 3:
        pass
    return store.get("n")


def ask_for_a_key():
    """Each that asks changes the store, and the last one is to set the key."""
    store = the_store()
    if rank_is(2):
        store.set("k", "1")
    while not store.check(["k"]):
        store.set("asking", str(dist.get_rank()))
    return store.get("k")


def ask_in_turn():
    """One looks five times before it sets what the other looks for."""
    mine, other = ("a", "b") if rank_is(0) else ("b", "a")
    for look in range(50):
        if look == 5 and rank_is(0):
            the_store().set(mine, "1")
        if rank_is(2) or the_store().check([other]):
            the_store().set(mine, "1")
            return "found"
    return "given up"


def take_a_lock_in_turn():
    store, own = the_store(), str(dist.get_rank())
    while store.compare_set("lock", "", own) != own.encode():
        pass
    store.append("order", own)
    dist.all_reduce(torch.ones(1), group=dist.new_group([int(own)]))
    store.delete_key("lock")
    dist.barrier()
    return store.get("order"), store.num_keys()


WAITS = {
    get_before_set: [b"1", None, None],
    wait_for_two: [[b"\x00\xff"] * 2, None, None],
    wait_in_the_store_of_a_group: [b"2", None, None],
    meet_in_the_store: [1, 2, 3],
    ask_for_a_counter: [b"3"] * 3,
    ask_for_a_key: [b"1"] * 3,
    ask_in_turn: ["found"] * 3,
}


@pytest.mark.parametrize("program", WAITS, ids=lambda f: f.__name__)
def test_who_waits_in_the_store_hands_on(program):
    found = dpkit.sim.launch(program, 3)
    if program is meet_in_the_store:
        found = sorted(found)
    assert found == WAITS[program]


def test_a_lock_in_the_store():
    found = dpkit.sim.launch(take_a_lock_in_turn, 3)
    assert len(set(found)) == 1
    assert sorted(found[0][0].decode()) == ["0", "1", "2"]


def never():
    store = the_store()
    if rank_is(0):
        store.wait(["a", "b", "c"])
    if rank_is(1):
        store.set("a", "1")
        store.set_timeout(timedelta(seconds=400))
        store.get("d")
    dist.barrier()


def test_a_key_that_never_comes_is_named():
    assert error_of(never, 3) == (
        "rank 0 failed (DistStoreError: wait timeout after 300000ms, keys: "
        "/0//a, /0//b, /0//c (rank 0 waits in the store for keys 'b', 'c'; "
        "rank 1 waits in the store for key 'd'; rank 2 waits in barrier "
        "number 0 of group 0))"
    )


def sleep(seconds):
    """Be busy for seconds of the simulated clock, as ``time.sleep`` in run."""
    simulation.clock.hosts.busy(dist.get_rank(), "sleep", seconds)


def waited(seconds, *keys):
    """Return how a wait ends, in words, and how far the clock is then."""
    told = "in time"
    try:
        the_store().wait(list(keys), seconds * SHORT)
    except dist.DistStoreError as error:
        told = str(error).partition(" (")[2][:-1]
    return told, round(dpkit.sim.now(), 3)


def ask_after_each_sleep():
    """Rank 0 gives up after two of the five sleeps of rank 1.

    They are so long that no limit is up on the wall.
    """
    if rank_is(0):
        found = waited(250, "k")
        the_store().set("gave up", "1")
        return found, waited(900, "k")
    seen = []
    for _ in range(5):
        sleep(100)
        seen.append(int(the_store().check(["gave up"])))
    the_store().set("k", "1")
    return seen


def set_before_another_waits():
    """By its turn rank 0 goes first, by its clock it sets after 2 s."""
    if rank_is(0):
        for _ in range(3):
            sleep(2)
            the_store().set("k", "1")
        return None
    return waited(1, "k"), waited(1.5, "k")


def wait_for_who_waits():
    if rank_is(0):
        return waited(2, "a", "b")
    found = waited(3, "c")
    the_store().set("a", "1")
    return found


def ask_until_told():
    """The clock of rank 1 stands still while it asks."""
    if rank_is(0):
        found = waited(0.1, "k")
        the_store().set("gave up", "1")
        return found
    while not the_store().check(["gave up"]):
        pass
    return "told"


POLLS = "rank 1 polls, or waits outside of torch.distributed"
LIMITED = {
    ask_after_each_sleep: [
        (
            (f"rank 0 waits in the store for key 'k'; {POLLS}", 250.0),
            ("in time", 500.0),
        ),
        [0, 0, 1, 1, 1],
    ],
    set_before_another_waits: [
        None,
        (
            ("key 'k' was set 1 s later, on the simulated clock", 1.0),
            ("in time", 6.0),
        ),
    ],
    wait_for_who_waits: [
        (
            "rank 0 waits in the store for keys 'a', 'b'; rank 1 waits in the "
            "store for key 'c'",
            2.0,
        ),
        (
            "rank 0 has returned; rank 1 waits in the store for key 'c'",
            3.0,
        ),
    ],
    ask_until_told: [
        (f"rank 0 waits in the store for key 'k'; {POLLS}", 0.1),
        "told",
    ],
}


@pytest.mark.parametrize("program", LIMITED, ids=lambda f: f.__name__)
def test_who_has_waited_long_enough_in_the_store_goes_on(program):
    """It has PyTorch's error, and the others do not learn of it."""
    assert dpkit.sim.launch(program, 2) == LIMITED[program]


def ask_for_a_while():
    end = time.monotonic() + 0.1
    while not the_store().check(["k"]):
        if time.monotonic() > end:
            return "gave up"
    return "found"


def test_who_asks_for_a_while_may_give_up():
    assert dpkit.sim.launch(ask_for_a_while, 2) == ["gave up"] * 2


def set_late():
    if rank_is(1):
        x = torch.ones(500, 500, device="sim")
        for _ in range(9):
            x @ x
        torch.sim.synchronize()
        the_store().set("k", "1")
        return dpkit.sim.now()
    the_store().get("k")
    return dpkit.sim.now()


def test_who_reads_is_no_earlier_than_who_has_set():
    reader, setter = dpkit.sim.launch(set_late, 2)
    assert reader == setter > 50e-6


def add_after_work():
    """Rank 0 works before it waits for rank 2, and rank 1 does not."""
    x = torch.empty(10_000_000, device="sim")
    y = torch.zeros(1, device="sim")
    if rank_is(2):
        dist.isend(y, 0)
        dist.isend(y, 1)
        return None
    if rank_is(0):
        for _ in range(50):
            x.add_(1)
        torch.sim.synchronize()
    dist.recv(y, 2)
    return the_store().add("n", 1)


def test_who_is_earlier_on_the_clock_goes_on_first():
    assert dpkit.sim.launch(add_after_work, 3) == [2, 1, None]


def wait_in_a_thread():
    told = []

    def wait():
        try:
            store.get("k")
        except RuntimeError as error:
            told.append(str(error))

    store = the_store()
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    return told


def test_a_thread_that_has_no_turn_cannot_wait():
    ((told,),) = dpkit.sim.launch(wait_in_a_thread, 1)
    assert "only the program of a rank" in told
    assert "key 'k'" in told


def ask_in_a_thread():
    told = []

    def ask():
        for question in (dist.is_initialized, dist.get_rank, dist.barrier):
            try:
                told.append(question())
            except RuntimeError as error:
                told.append(str(error))

    thread = threading.Thread(target=ask, name="helper")
    thread.start()
    thread.join()
    return told


def test_a_thread_of_a_rank_does_not_take_itself_for_a_program_alone():
    """As where a library saves in a thread, if it has no process group."""
    for told in dpkit.sim.launch(ask_in_a_thread, 2):
        assert len(told) == 3
        assert all("(asked for by: 'helper')" in str(x) for x in told)


# -- who waits elsewhere is named


WARNED = threading.Event()


def wait_until_warned():
    if rank_is(1):
        WARNED.wait(600)
    return total()


def sleep_shortly():
    if rank_is(1):
        time.sleep(0.2)
    return total()


def work_long():
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        pass
    return total()


def warned(monkeypatch, program, k=2, after=0.3):
    """Return the warnings of a launch, and its values.

    After a first one there is time for another, then ``WARNED`` is set.
    """
    warn = warnings.warn_explicit

    def warn_and_tell(*args, **kwargs):
        warn(*args, **kwargs)
        threading.Timer(3 * after, WARNED.set).start()

    WARNED.clear()
    monkeypatch.setattr(warnings, "warn_explicit", warn_and_tell)
    monkeypatch.setattr(watching, "WARN_AFTER", after)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        values = dpkit.sim.launch(program, k)
    found = [w for w in found if "has done nothing" in str(w.message)]
    return found, values


def test_a_rank_that_does_nothing_is_named_once(monkeypatch):
    (told,), values = warned(monkeypatch, wait_until_warned)
    line = wait_until_warned.__code__.co_firstlineno + 2
    assert (told.filename, told.lineno) == (__file__, line)
    assert re.match(r"rank 1 has done nothing for \d+ s \(", str(told.message))
    place = f"line {line} of {__file__}, in wait_until_warned"
    assert place in str(told.message)
    assert "dist.barrier" in str(told.message)
    assert values == [2.0, 2.0]


def test_a_function_of_a_library_is_named(monkeypatch):
    """There is no line of a program: that of the library is told."""
    (told,), _ = warned(monkeypatch, WARNED.wait, 1)
    assert told.filename == threading.__file__
    assert ", in wait)" in str(told.message)


def test_a_rank_at_work_is_not_named(monkeypatch):
    assert warned(monkeypatch, work_long)[0] == []
    assert warned(monkeypatch, sleep_shortly, after=60.0)[0] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_a_rank_that_gets_no_processor_is_not_named(monkeypatch):
    """It is ready to work, while other processes use all of the CPU."""
    monkeypatch.setattr(watching, "seconds_here", lambda: 0.0)
    assert warned(monkeypatch, work_long)[0] == []


# -- a limit ends who waits elsewhere


def wait_for_a_lock():
    if rank_is(1):
        with LOCK:
            return total()
    return total()


def sleep_in_turn():
    """Do nothing for 1.6 s in all, but not in one turn."""
    for _ in range(4):
        time.sleep(0.2)
        total()


def limited(program, **limit):
    """Run a program whose rank 1 waits for a lock; let it end afterwards."""
    with LOCK, pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(program, 2, **limit)
    for thread in threading.enumerate():
        if thread.name == "rank 1":
            thread.join(1200)
    return caught.value


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_limit_ends_a_rank_that_waits_elsewhere(monkeypatch, way):
    if way == "environment":
        monkeypatch.setenv("DPKIT_IDLE_LIMIT", "0.5")
    given = {"idle_limit": 0.5} if way == "argument" else {}
    error = limited(wait_for_a_lock, **given)
    line = wait_for_a_lock.__code__.co_firstlineno + 2
    place = f"line {line} of {__file__}, in wait_for_a_lock"
    words = rf"rank 1 has done nothing for \d+ s \({re.escape(place)}; limit"
    assert re.match(words, str(error))
    assert error.__notes__ == [f"rank 1 does not end: it waits in {place}"]
    assert dpkit.sim.launch(total, 2) == [2.0, 2.0]


def test_a_limit_is_for_each_turn():
    dpkit.sim.launch(sleep_in_turn, 2, idle_limit=1.0)


def test_an_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("DPKIT_IDLE_LIMIT", "0.3")
    dpkit.sim.launch(time.sleep, 1, 0.8, idle_limit=30)


@pytest.mark.parametrize("limit", [0, -1.0, "soon", float("nan")])
def test_a_limit_is_a_positive_number_of_seconds(monkeypatch, limit):
    with pytest.raises(ValueError, match=r"\(idle_limit: "):
        dpkit.sim.launch(total, 2, idle_limit=limit)
    monkeypatch.setenv("DPKIT_IDLE_LIMIT", str(limit))
    with pytest.raises(ValueError, match=r"\(DPKIT_IDLE_LIMIT: "):
        dpkit.sim.launch(total, 2)


# -- Ctrl-C


LOCK, QUEUE = threading.Lock(), queue.Queue()
MEETING, OTHER_STORE = threading.Barrier(2), dist.HashStore()


def come(blocked):
    """Say that the interrupt may come, once this rank is about to block."""
    if blocked:
        print("at it", flush=True)


def lock():
    come(rank_is(1))
    with LOCK:
        dist.barrier()


def barrier():
    come(rank_is(0))
    MEETING.wait()


def take():
    """Wait for what nobody puts; then for ranks that have ended."""
    group = dist.group.WORLD
    come(rank_is(0))
    try:
        return QUEUE.get() if rank_is(0) else QUEUE.put(1)
    finally:
        group.barrier().wait()


def key():
    """Wait in a store of PyTorch's own, which knows nothing of turns."""
    come(rank_is(0))
    return OTHER_STORE.get("k")


def ask():
    come(rank_is(0))
    while not the_store().check(["k"]):
        time.sleep(0.01)


def wake():
    """Let go on who waits in one of these."""
    MEETING.abort()
    QUEUE.put(1)
    OTHER_STORE.set("k", "1")


def be_interrupted(program):
    """What a child process does: the parent sends it an interrupt."""
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    dpkit.devices(2, kind="sim")
    group = dist.group.WORLD
    try:
        dpkit.sim.launch(program, 2)
    except KeyboardInterrupt as error:
        print("notes:", *getattr(error, "__notes__", []))
    print(dpkit.sim.launch(total, 2))
    print("left:", [t.name for t in threading.enumerate()[1:]])
    wake()
    for thread in threading.enumerate()[1:]:
        thread.join(600)
    print("threads:", threading.active_count())
    print("group:", dist.group.WORLD is group)
    print(dpkit.sim.launch(total, 2))


def interrupt(forking, program):
    code = (
        "import signal; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from tests.runs.test_ranks_waiting import *; "
        f"be_interrupted({program})"
    )
    with start(forking, code) as run:
        try:
            assert run.stdout.readline() == "at it\n"
            # A second one changes nothing, while a rank does not end.
            for _ in range(1 if LEFT[program] is None else 2):
                wait_until_it_waits(run.pid)
                run.send_signal(signal.SIGINT)
            told, _ = run.communicate()
        finally:
            run.kill()
    return told


LEFT = {"lock": 1, "barrier": 0, "take": 0, "key": 0, "ask": None}


@pytest.mark.parametrize("program", LEFT)
def test_an_interrupt_ends_who_waits_elsewhere(program, forking):
    told = interrupt(forking, program)
    rank = LEFT[program]
    notes = re.search("notes:(.*)", told).group(1)
    if rank is None:
        assert notes == ""
    else:
        assert f"rank {rank} does not end: it waits in line" in notes
        assert f"{__file__}, in {program}" in notes
    # Of the lock the other rank lets go when it ends.
    is_left = rank is not None and program != "lock"
    left = [f"rank {rank}"] * is_left
    assert f"left: {left}\nthreads: 1\ngroup: True\n[2.0, 2.0]" in told
    assert told.count("[2.0, 2.0]") == 2


INTERRUPTED_IMPORT = """
import signal
import sys
import dpkit

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo.variables.functions":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

dpkit.devices(2, kind="sim")
sys.meta_path.insert(0, Interrupt())
for _ in range(2):
    try:
        print(dpkit.sim.launch(lambda: "worked", 2))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_while_a_first_launch_imports(run_new):
    """Else half a module would be left, and the next launch blame torch."""
    assert run_new(INTERRUPTED_IMPORT) == "interrupted\n['worked', 'worked']\n"
