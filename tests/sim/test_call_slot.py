"""The pointer by which PyTorch's library asks for a backend from outside."""

import ctypes
import mmap
import os
import subprocess
import sys

import pytest

from dpkit.sim.changes import call_slot, mixed_backends
from dpkit.sim.changes.call_slot import Slot, address_of, find_slot
from dpkit.sim.changes.mixed_backends import find_choice

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the tables are those of Linux"
)
QUESTION = "_ZN3c1033is_privateuse1_backend_registeredEv"


@pytest.fixture
def asking():
    return ctypes.CDLL("libtorch_cpu.so")


def test_the_slot_leads_to_the_function(asking):
    slot = find_slot(asking, QUESTION)
    assert slot.function == address_of(ctypes.CDLL("libc10.so"), QUESTION)


def test_no_slot_for_a_function_that_is_not_called(asking):
    assert find_slot(asking, "_ZN3c10no_such_functionEv") is None
    assert find_slot(ctypes.CDLL("libc10.so"), QUESTION) is None, "its own"
    assert address_of(asking, "no_such_function") is None


def test_a_slot_of_the_second_table():
    """It is filled when the library is loaded, as that of functions on ARM."""
    slot = find_slot(ctypes.CDLL("libtorch_python.so"), "PyExc_KeyError")
    error = ctypes.py_object.in_dll(ctypes.pythonapi, "PyExc_KeyError")
    assert error.value is KeyError
    assert slot.function == ctypes.addressof(error)


def test_a_read_only_slot_is_writable_for_a_moment(asking):
    # What a compiler's library may define, and none does: it is empty.
    slot = find_slot(asking, "_ITM_deregisterTMCloneTable")
    assert slot.read_only
    assert slot.function == 0
    slot.lead_to(5)
    try:
        assert slot.function == 5
        assert not call_slot._is_writable(slot.address)
    finally:
        slot.lead_to(0)


def test_a_slot_that_stays_read_only_is_named(asking, monkeypatch):
    def refuse(address, rights):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(call_slot, "_is_writable", lambda address: False)
    monkeypatch.setattr(call_slot, "_allow", refuse)
    assert "read-only and stays so ([Errno 13]" in find_choice()
    with pytest.raises(OSError, match="Permission"):
        find_slot(asking, QUESTION).lead_to(1)


def test_to_allow_what_the_system_refuses_is_an_error():
    with pytest.raises(OSError, match="Cannot allocate memory"):
        call_slot._allow(0, 1)


def test_other_machines_have_other_kinds_of_slots(asking, monkeypatch):
    monkeypatch.setattr(call_slot.platform, "machine", lambda: "riscv64")
    assert find_slot(asking, QUESTION) is None
    assert "(machine: riscv64)" in find_choice()


def test_code_is_not_writable():
    code = address_of(ctypes.CDLL("libc10.so"), QUESTION)
    assert not call_slot._is_writable(code)
    number = ctypes.c_int()
    assert call_slot._is_writable(ctypes.addressof(number))
    assert not call_slot._is_writable(0)


def test_a_file_with_any_name_may_be_in_memory(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff.bin")
    with open(path, "w+b") as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        with mmap.mmap(file.fileno(), 0):
            assert not call_slot._is_writable(0)


# C++ is asked for the accelerator, before others stand in its place in Python.
PROGRAM = """
import ctypes, mmap, sys, threading
import torch
ask = torch._C._get_accelerator
import dpkit
from dpkit.sim.changes.mixed_backends import find_choice
from dpkit.sim.changes.call_slot import find_slot

if sys.argv[1] == "read-only":
    name = "_ZN3c1033is_privateuse1_backend_registeredEv"
    address = find_slot(ctypes.CDLL("libtorch_cpu.so"), name).address
    page = ctypes.c_void_p(address - address % mmap.PAGESIZE)
    assert ctypes.CDLL(None).mprotect(page, mmap.PAGESIZE, mmap.PROT_READ) == 0
choice = find_choice()
assert choice.slot.read_only == (sys.argv[1] == "read-only")
dpkit.sim.register()
print(ask())
choice.begin()
print(ask(), torch.device("sim:1"), torch.ones(1, device="sim").device)
with choice.chosen("sim"):
    print(ask())
    thread = threading.Thread(target=lambda: print(ask()))
    thread.start()
    thread.join()
    with choice.chosen("cuda"):
        print(ask())
    print(ask())
ctypes.CDLL(None).pthread_setconcurrency(4)
print(ask())
"""


@pytest.mark.parametrize("memory", ["writable", "read-only"])
def test_the_slot_alone_decides_which_accelerator_cpp_has(memory):
    """Without a GPU there is none, as if nothing had been registered."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, memory],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, *others = run.stdout.splitlines()
    assert (first, second) == ("sim", "cpu sim:1 sim:0")
    assert others == ["sim", "cpu", "cpu", "sim", "cpu"]


def test_a_slot_that_leads_elsewhere_is_left_alone(asking, monkeypatch):
    number = ctypes.c_uint64(1)
    slot = Slot(ctypes.addressof(number))
    monkeypatch.setattr(mixed_backends, "find_slot", lambda *_: slot)
    assert "elsewhere" in find_choice()
    assert number.value == 1


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_have_other_libraries(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert platform in find_choice()


def test_other_c_libraries_have_other_tables(monkeypatch):
    for loader in ("CDLL", "PyDLL"):
        monkeypatch.setattr(mixed_backends.ctypes, loader, lambda _: object())
    assert "not GNU's" in find_choice()


def test_a_library_that_is_not_there(monkeypatch):
    def fail(name):
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(mixed_backends.ctypes, "PyDLL", fail)
    assert "libtorch_cpu.so: cannot open" in find_choice()
