"""How a launch ends, by how its ranks do: one table for all ways to start it.

``sim.launch`` has threads, ``dpkit torchrun`` processes that are forked, and
``dpkit.launch`` processes that send by gloo. The programs, of two ranks each,
are those of ``promises_on_ranks``.
"""

import json
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from tests.forked_python import popen
from tests.runs.promises_on_ranks import BY_NAME

WAYS = ("threads", "torchrun", "processes")

# -- errors of rank 1, which each way names: with the rank, its kind and text

RAISED = {
    "raise_at_once": "ValueError: too few",
    "raise_an_end_of_file": "EOFError: ran out",
    "raise_odd": "OddError: <exception str() failed>",
    "raise_in_forward": "ValueError: in forward",
    "raise_in_backward": "ValueError: in backward",
    "raise_in_a_collective": "TypeError: Invalid function argument",
}
NAMED = {
    "threads": ["RuntimeError: rank 1 failed ({}"],
    "torchrun": [
        "RankError: rank 1 failed ({}",
        "rank 0 was at line",
        "rank 1 was at line",
    ],
    "processes": ["a rank raised an exception (rank: 1 of 2)", "{}"],
}

# -- all else: what each way says; None: there it has another meaning

NO_RESULT = "a rank ended without a result (rank: {} of 2, {})"
WAITS = "rank 1 has done nothing for SOME s (line"
THERE = "promises_on_ranks.py"
ENDS = {
    # program: threads, torchrun, processes
    "end_well": [
        ["well: [[2.0, 2.0], [2.0, 2.0]]"],
        ["well: [True, True]", "[2.0, 2.0]\n[2.0, 2.0]"],
        ["well: [[2.0, 2.0], [2.0, 2.0]]"],
    ],
    # The others have a group before the program begins.
    "raise_before_the_group": [
        None,
        ["rank 1 failed (ValueError: no group yet)"],
        None,
    ],
    # Python prints it, and goes on to its end. Threads have no own exit.
    "raise_at_exit": [None, ["well: [True, True]"], ["well: [None, None]"]],
    # A function has no exit status: to return is to end well.
    "exit_3": [
        ["rank 1 failed (SystemExit: 3)"],
        ["rank 1 failed (the script has ended with exit status 3)"],
        ["(rank: 1 of 2)", "SystemExit: 3"],
    ],
    "exit_0": [
        ["failed (SystemExit: 0)"],
        ["well: [True, True]"],
        ["a rank raised an exception", "SystemExit: 0"],
    ],
    # These would end the process of all threads.
    "exit_0_at_once": [
        None,
        ["well: [True, True]"],
        [NO_RESULT.format(0, "exit code: 0")],
    ],
    "exit_4_at_once": [
        None,
        ["rank 1 failed (its process has ended with exit status 4)"],
        [NO_RESULT.format(1, "exit code: 4")],
    ],
    "exit_with_a_loss": [
        None,
        ["failed (the script has ended with exit status 1 (0.0)"],
        ["a rank raised an exception", "SystemExit: tensor(0.)"],
    ],
    # Only the end of a program waits for its threads.
    "exit_in_a_thread": [
        None,
        ["rank 1 failed (its process has ended with exit status 5)"],
        None,
    ],
    "wait_in_a_thread": [
        None,
        [WAITS, f"{THERE}, in wait; limit: 1 s"],
        None,
    ],
    # That of threads is the one of the process that goes on.
    "close_the_output": [
        None,
        ["well: [True, True]"],
        ["well: [None, None]"],
    ],
    "be_terminated": [
        None,
        ["rank 1 failed (its process was killed by SIGTERM)"],
        [NO_RESULT.format(1, "signal: 15, Terminated")],
    ],
    "be_killed": [
        None,
        ["rank 1 failed (its process was killed by SIGKILL, as by the"],
        [NO_RESULT.format(1, "signal: 9, Killed")],
    ],
    # In a thread it would end all; a real process may.
    "become_another": [
        None,
        ["rank 1 failed (NotImplementedError: a rank of", "/sleep)"],
        None,
    ],
    # The child ends where the program does, and speaks for no rank.
    "fork_a_child": [
        ["well: [[2.0, 2.0], [2.0, 2.0]]"],
        ["well: [True, True]", "[2.0, 2.0]\n[2.0, 2.0]"],
        ["well: [[2.0, 2.0], [2.0, 2.0]]"],
    ],
    "launch_in_it": [
        ["well: ['ranks are running already"],
        ["well: [True, True]", "ranks are running already"],
        ["well: ['launched', 'launched']"],
    ],
    # Real processes may, each by a fork server of its own.
    "launch_processes_in_it": [
        ["well: ['a rank of a simulated machine starts no real processes"],
        ["well: [True, True]", "no real processes, which", "caller: rank 1, "],
        None,
    ],
    "wait_outside": [
        [WAITS, THERE, "in wait_outside; limit: 1 s", "One rank runs"],
        [WAITS, THERE, "in wait_outside; limit: 1 s", "No other rank"],
        ["rank 1 was in wait(), called from wait_outside() at " + THERE],
    ],
    "interrupt": [["KeyboardInterrupt"]] * 3,
    # Only a command of ours hears it for its ranks, as torchrun does.
    "save_when_told_to_end": [
        ["a process hears signals in its main thread alone"],
        ["[[2.0, 2.0], True]", "EndSignal: SIGTERM"],
        None,
    ],
    # A wait ends first, as one in C++, and the ranks can go on.
    "have_a_time_limit": [
        ["a process hears signals in its main thread alone"],
        ["well: [True, True]", "own limit, then [2.0, 2.0]"],
        ["well: ['own limit, then [2.0, 2.0]', 'not ended, then"],
    ],
    # A thread's is one of the process that goes on.
    "leave_a_process": [
        None,
        ["rank 1 failed (its process was killed by SIGKILL, as by the"],
        [NO_RESULT.format(1, "signal: 9, Killed")],
    ],
}
PROMISES = {
    (name, way): [text.format(error) for text in NAMED[way]]
    for name, error in RAISED.items()
    for way in WAYS
} | {
    (name, way): texts
    for name, of_ways in ENDS.items()
    for way, texts in zip(WAYS, of_ways, strict=True)
    if texts is not None
}


@cache
def run_all():
    """Return what launches of all programs have left, by the way.

    The three ways run at once: most of their time is waiting.
    """
    with ThreadPoolExecutor(len(WAYS)) as pool:
        return dict(zip(WAYS, pool.map(_run_one_way, WAYS), strict=True))


def _run_one_way(way):
    names = [name for name in BY_NAME if (name, way) in PROMISES]
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from tests.runs.promises_on_ranks import main\n"
        "main()"
    )
    words = [sys.executable, "-c", code, way, *names]
    run = popen(words, stdout=-1, stderr=-2, text=True, start_new_session=True)
    text, _ = run.communicate()
    assert run.returncode == 0, text
    _, *parts = text.split('["begins", "')
    return dict(part.split('"]\n', 1) for part in parts)


def said(text):
    """Return what a program has said, and how its launch has ended."""
    lines = [line for line in text.splitlines() if line.startswith('["')]
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), PROMISES)
def test_a_launch_ends_as_promised(name, way):
    left = run_all()[way][name]
    found = "\n".join(str(told) for _, told in said(left))
    # The limit is 1 s; on a busy machine it may be noticed later.
    found = re.sub(r"nothing for \d+ s", "nothing for SOME s", found)
    for text in PROMISES[name, way]:
        assert text in found, left


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torchrun", "processes"])
def test_a_launch_that_has_failed_leaves_nothing(way, is_running):
    left = said(run_all()[way]["leave_a_process"])
    ((process, folder),) = [told for what, told in left if what == "left"]
    deadline = time.monotonic() + 1200
    while is_running(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    if is_running(process):
        os.kill(process, signal.SIGKILL)
        raise AssertionError("what a rank has started is still there")
    assert not folder or not Path(folder).exists()


def test_every_program_has_a_promise():
    assert {*BY_NAME} == {*RAISED, *ENDS}
