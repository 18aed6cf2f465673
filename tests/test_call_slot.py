"""The pointer by which PyTorch's library asks for a backend from outside."""

import ctypes
import subprocess
import sys

import pytest

from dpkit.sim import both_kinds, call_slot
from dpkit.sim.both_kinds import AcceleratorChoice, find_choice
from dpkit.sim.call_slot import address_of, find_slot

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the tables are those of Linux"
)
QUESTION = "_ZN3c1033is_privateuse1_backend_registeredEv"


@pytest.fixture
def asking():
    return ctypes.CDLL("libtorch_cpu.so")


def test_the_slot_leads_to_the_function(asking):
    slot = find_slot(asking, QUESTION)
    assert slot.value == address_of(ctypes.CDLL("libc10.so"), QUESTION)


def test_no_slot_for_a_function_that_is_not_called(asking):
    assert find_slot(asking, "_ZN3c10no_such_functionEv") is None
    assert find_slot(ctypes.CDLL("libc10.so"), QUESTION) is None, "its own"
    assert address_of(asking, "no_such_function") is None


def test_no_slot_that_cannot_be_written(asking, monkeypatch):
    monkeypatch.setattr(call_slot, "_is_writable", lambda address: False)
    assert find_slot(asking, QUESTION) is None
    assert "do not have the call" in find_choice()


def test_code_is_not_writable():
    code = address_of(ctypes.CDLL("libc10.so"), QUESTION)
    assert not call_slot._is_writable(code)
    number = ctypes.c_int()
    assert call_slot._is_writable(ctypes.addressof(number))
    assert not call_slot._is_writable(0)


# C++ is asked for the accelerator, before others stand in its place in Python.
PROGRAM = """
import torch
ask = torch._C._get_accelerator
import dpkit
from dpkit.sim.both_kinds import find_choice
choice = find_choice()
dpkit.sim.register()
print(ask())
choice.choose("cuda")
print(ask(), torch.device("sim:1"), torch.ones(1, device="sim").device)
choice.choose("sim")
print(ask())
"""


def test_the_slot_alone_decides_which_accelerator_cpp_has():
    """Without a GPU there is none, as if nothing had been registered."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == ["sim", "cpu sim:1 sim:0", "sim"]


def test_a_slot_that_leads_elsewhere_is_left_alone(asking, monkeypatch):
    number = ctypes.c_uint64(1)
    monkeypatch.setattr(both_kinds, "find_slot", lambda *_: number)
    assert "elsewhere" in find_choice()
    assert number.value == 1


def test_a_zero_that_is_none_is_not_taken(monkeypatch):
    library = ctypes.CDLL(None)
    library.pthread_setconcurrency(1)
    try:
        assert "pthread_getconcurrency" in find_choice()
    finally:
        library.pthread_setconcurrency(0)
    assert isinstance(find_choice(), AcceleratorChoice)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_have_other_libraries(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert platform in find_choice()


def test_other_c_libraries_have_other_tables(monkeypatch):
    monkeypatch.setattr(both_kinds.ctypes, "CDLL", lambda name: object())
    assert "not GNU's" in find_choice()


def test_a_library_that_is_not_there(monkeypatch):
    def fail(name):
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(both_kinds.ctypes, "CDLL", fail)
    assert "libtorch_cpu.so: cannot open" in find_choice()
