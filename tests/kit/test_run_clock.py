"""Tests of the clock of a run: which of its seconds count."""

import os
import sys
import time

import pytest

from dpkit.processes.run_clock import (
    READ_SECONDS,
    ProcessorUse,
    RunClock,
    read_uses,
)


class Machine:
    """A machine whose threads get what a test says."""

    def __init__(self):
        self.time, self.uses = 100.0, {}

    def clock(self):
        return RunClock(lambda: dict(self.uses), lambda: self.time)

    def go_on(self, seconds, **uses):
        """Pass the time; in it threads ran and waited for so many seconds."""
        self.time += seconds
        for thread, (ran, waited) in uses.items():
            old = self.uses.get(thread, ProcessorUse(0.0, 0.0))
            self.uses[thread] = ProcessorUse(
                old.ran + ran, old.waited + waited
            )


@pytest.fixture
def machine():
    return Machine()


@pytest.mark.parametrize(
    ("uses", "counted"),
    [
        ({}, 20.0),  # all sleep, or the system does not say
        ({"a": (20, 0)}, 20.0),
        ({"a": (1, 0), "b": (0.5, 0)}, 20.0),
        ({"a": (5, 15)}, 5.0),  # other programs have three quarters
        ({"a": (5, 15), "b": (5, 15), "c": (5, 15), "d": (5, 15)}, 5.0),
        ({"a": (0.01, 0.29)}, 20 / 30),  # it waits for one that waits
        ({"a": (0, 20)}, 0.0),
    ],
)
def test_a_second_counts_by_what_the_ranks_got(machine, uses, counted):
    machine.uses["a"] = ProcessorUse(7.0, 3000.0)  # before the run
    clock = machine.clock()
    machine.go_on(20.0, **uses)
    assert clock.seconds() == pytest.approx(counted)


def test_a_busy_hour_is_forgotten_when_it_is_over(machine):
    """A rank that hangs is then late after as many seconds as allowed."""
    clock = machine.clock()
    machine.go_on(60.0, a=(1, 59))
    assert clock.seconds() == pytest.approx(1)
    machine.go_on(READ_SECONDS)
    clock.seconds()
    machine.go_on(60.0)
    assert clock.seconds() == pytest.approx(61 + READ_SECONDS)


def test_between_two_readings_the_last_share_holds(machine):
    clock = machine.clock()
    machine.go_on(8.0, a=(2, 6))
    assert clock.seconds() == pytest.approx(2)
    machine.go_on(READ_SECONDS / 2, a=(1, 0))
    assert clock.seconds() == pytest.approx(2 + READ_SECONDS / 8)


def test_threads_that_begin_and_end(machine):
    clock = machine.clock()
    machine.go_on(4.0, a=(1, 3))
    assert clock.seconds() == pytest.approx(1)
    del machine.uses["a"]
    machine.go_on(4.0, b=(2, 2))
    assert clock.seconds() == pytest.approx(3)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says it in /proc")
def test_what_linux_says_of_this_process():
    begin = time.thread_time()
    before = read_uses([os.getpid()])
    while time.thread_time() - begin < 0.3:
        pass
    after = read_uses([os.getpid()])
    (own,) = [t for t in after if t.endswith(f"/{os.getpid()}")]
    assert after[own].ran - before[own].ran >= 0.2
    assert after[own].waited >= before[own].waited


def test_a_process_that_has_ended_has_had_nothing():
    assert read_uses([2**22 + 1]) == {}
