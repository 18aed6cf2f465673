"""The test that leaves something behind fails, by name, and no other does."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.repository import ROOT

BEGINNING = """
import ctypes, gc, os, signal, subprocess, sys, tempfile, threading, time
import pytest, torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
import dpkit
from dpkit import sim
import dpbook.job.roll_call

dpkit.devices(2, "sim")
KEPT, THREADS = [], []
"""
# What is left behind, and what is said of it.
LEAKS = {
    "a_tensor": (
        "KEPT.append(torch.ones(3, 4, device='sim:1'))",
        "a tensor, (3, 4), torch.float32, 48 bytes on sim:1 (other), "
        "held by list ← test_planted.KEPT",
    ),
    "a_tensor_of_a_class": (
        "class Kept: x = torch.ones(3, device='sim:0')\nKEPT.append(Kept)",
        "held by a dict, at 'x' ← type test_a_tensor_of_a_class.<locals>.Kept "
        "← list ← test_planted.KEPT",
    ),
    "many_tensors": (
        "KEPT.extend(torch.ones(2, device='sim:0') for _ in range(8))",
        "3 more tensors, 24 bytes",
    ),
    "a_setting": (
        "sim.configure(accelerator='h100')",
        "of the simulated machine: accelerator was 'v100', and is 'h100'",
    ),
    "a_number_of_devices_with_a_tensor": (
        "sim.configure(num_devices=3)\n"
        "KEPT.append(torch.ones(3, device='sim:2'))",
        "of the simulated machine: num_devices was 8, and is 3",
    ),
    "a_machine": (
        "KEPT.append(sim.machine(num_devices=2)); KEPT[-1].__enter__()",
        "of the simulated machine: is_for_a_block was False, and is True",
    ),
    "a_device": (
        "torch.sim.set_device(1)",
        "of the simulated machine: the current device was 0, and is 1",
    ),
    "a_stream": (
        "torch.sim.set_stream(torch.sim.Stream('sim:0'))",
        "of the simulated machine: current streams, by device was {}, and is "
        "{0: 1}",
    ),
    "a_stream_that_is_entered": (
        "torch.sim.Stream('sim:0').__enter__()",
        "of the simulated machine: entered streams was 0, and is 1",
    ),
    "a_trace": (
        "KEPT.append(sim.trace(races=True)); KEPT[-1].__enter__()",
        "of the simulated machine: a trace is running was False, and is True",
    ),
    "a_thread": (
        "end = threading.Event()\nTHREADS.append(end)\n"
        "threading.Thread(target=end.wait, name='waits').start()",
        "a thread: waits, at ",
    ),
    "a_process": (
        "KEPT.append(subprocess.Popen(['sleep', '321']))",
        ", sleep 321",
    ),
    "a_process_that_has_ended": (
        "KEPT.append(subprocess.Popen(['true']))",
        ", never waited for",
    ),
    "a_patch": (
        "dpkit.machine.devices = lambda: []",
        "a patch: dpkit.machine.devices was <function devices at ",
    ),
    "a_patch_of_a_class": (
        "dpkit.Timer.__enter__ = lambda self: self",
        "a patch: dpkit.machine.Timer.__enter__ was <function ",
    ),
    "a_patch_of_a_constant": (
        "from dpbook.job import roll_call\nroll_call.ROLL_CALL_SECONDS = 2",
        "a patch: dpbook.job.roll_call.ROLL_CALL_SECONDS was 10.0, and is 2",
    ),
    "a_patch_of_torch": (
        "torch.nn.functional.relu = torch.sigmoid",
        "a patch: torch.nn.functional.relu was <function relu at ",
    ),
    "a_patch_of_a_tensor": (
        "torch.Tensor.tolist = list",
        "a patch: torch.Tensor.tolist is new: <class 'list'>",
    ),
    "a_patch_of_python": (
        "time.perf_counter = float",
        "a patch: time.perf_counter was <built-in function perf_counter>, "
        "and is <class 'float'>",
    ),
    "a_variable": (
        "os.environ['LEFT'] = 'a b'",
        "a variable of the environment: LEFT is new: 'a b'",
    ),
    "a_variable_less": (
        "del os.environ['HOME']",
        "a variable of the environment: HOME has gone: ",
    ),
    "a_folder": ("os.chdir('/')", "the current folder was "),
    "a_path": ("sys.path.append('left')", "sys.path has ['left']"),
    "an_excepthook": (
        "sys.excepthook = print",
        "sys.excepthook was <built-in function excepthook>, and is "
        "<built-in function print>",
    ),
    "a_handler": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "the handler of SIGINT was ",
    ),
    "a_dtype": (
        "torch.set_default_dtype(torch.float64)",
        "the default dtype was torch.float32, and is torch.float64",
    ),
    "no_gradients": (
        "torch.set_grad_enabled(False)",
        "whether gradients are kept was True, and is False",
    ),
    "a_default_device": (
        "torch.set_default_device('cpu')",
        "modes of functions, such as a default device was 0, and is 1",
    ),
    "a_mode": (
        "TorchDispatchMode().__enter__()",
        "modes of dispatch was 0, and is 1",
    ),
    "a_hook": (
        "torch.nn.modules.module.register_module_forward_hook(print)",
        "_global_forward_hooks was {}, and is {",
    ),
    "threads_of_torch": (
        "torch.set_num_threads(torch.get_num_threads() + 1)",
        "the number of threads was ",
    ),
    "a_process_group": (
        "dist.init_process_group('gloo', rank=0, world_size=1, "
        "store=dist.HashStore())",
        "the process group of torch.distributed was False, and is True",
    ),
    "a_temporary_file": (
        "os.close(tempfile.mkstemp(prefix='left')[0])",
        "/left",
    ),
    "a_temporary_folder": ("tempfile.mkdtemp(prefix='left')", "/left"),
    "a_file_of_the_repository": (
        "open('left.txt', 'w').close()",
        "/left.txt",
    ),
    "a_file_in_a_folder_of_it": (
        "open('inside/left.txt', 'w').close()",
        "/inside/left.txt",
    ),
    "something_and_is_skipped": (
        "torch.sim.set_device(1)\npytest.skip('it leaves a device')",
        "the current device was 0, and is 1",
    ),
}
# What may be, and no test fails by it.
MAY_BE = """
def test_a_cycle():
    x = [torch.ones(3, device="sim:0")]
    x.append(x)

def test_an_error_that_is_caught():
    x = torch.ones(3, device="sim:0")
    with pytest.raises(RuntimeError) as error:
        x @ torch.ones(4, device="sim:0")

def test_a_thread_that_ends_soon():
    threading.Thread(target=time.sleep, args=[0.3]).start()

def test_a_process_that_ends_soon():
    subprocess.Popen(["sleep", "0.3"])

def test_a_process_of_one_that_has_ended():
    if sys.platform == "linux":  # this process becomes its parent
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    subprocess.run(["sh", "-c", "sleep 0.3 &"])

@pytest.fixture
def of_a_test():
    return torch.ones(3, device="sim:0")

def test_what_its_fixtures_have(of_a_test, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(dpkit.machine, "devices", list)
    monkeypatch.chdir(tmp_path)

@pytest.fixture(scope="module")
def of_a_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dpkit.machine, "devices", list)
        patch.setenv("HOME", "/tmp")
        folder = tempfile.TemporaryDirectory()
        process = subprocess.Popen(["sleep", "321"])
        yield torch.ones(3, device="sim:0")
        process.kill()
        process.wait()
        folder.cleanup()

def test_asked_for_late(request):
    request.getfixturevalue("of_a_module")

def test_there_before(of_a_module):
    assert of_a_module.sum() == 3

def test_fails():
    x = torch.ones(3, device="sim:0")
    torch.sim.set_device(1)
    assert not x.sum()

def test_nothing_is_left_of_one_that_fails():
    assert sim.devices.configuration.simulation.memory.live == [12] + [0] * 7
    assert torch.sim.current_device() == 0

def test_threads_end():
    THREADS.pop().set()
"""
# The last: what it takes back cannot all be put back.
AS_IT_WAS = """
def test_torch_as_it_was():
    dpkit.sim.changes.change.undo_all()
"""
LITTLE_PATIENCE = """
import gc
from tests.left_behind import plugin
plugin.PATIENCE = 1

def pytest_collection_finish():
    gc.freeze()  # or each collection would look through torch
"""
OF_A_MODULE = """
import pytest, torch
import dpkit

@pytest.fixture(scope="module")
def leaks():
    dpkit.devices(1, "sim")
    torch.sim.set_device(1)

def test_with_fixtures(leaks):
    pass

def test_afterwards():
    pass
"""
OF_THE_SESSION = """
import os
import pytest

@pytest.fixture(scope="session")
def leaks():
    os.environ["LEFT"] = "1"

def test_of_the_session(leaks):
    pass
"""
EXAMPLES = '''
"""Two examples, of which the first leaves something behind."""
import dpkit, torch

def leaves():
    """
    >>> [zero] = dpkit.devices(1, "sim")
    >>> torch.ones(3, device=zero)
    tensor([1., 1., 1.], device='sim:0')
    >>> torch.sim.set_device(1)
    """

def leaves_nothing():
    """
    >>> torch.sim.current_device()
    0
    """
'''


def planted():
    """Yield the lines of tests, each of which leaves something behind."""
    yield BEGINNING
    for name, (code, _) in LEAKS.items():
        yield f"def test_{name}():"
        yield from (f"    {line}" for line in code.splitlines())
    yield MAY_BE
    yield AS_IT_WAS


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what pytest says of each test, by its name; "" if all is well."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "inside").mkdir()
    (folder / "pytest.ini").touch()
    for name, text in (
        ("conftest", LITTLE_PATIENCE),
        ("test_a_module", OF_A_MODULE),
        ("test_examples", EXAMPLES),
        ("test_planted", "\n".join(planted())),
        ("test_session", OF_THE_SESSION),
    ):
        (folder / f"{name}.py").write_text(text)
    words = "-p tests.left_behind.plugin --doctest-modules --junitxml=said.xml"
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words.split(), "--basetemp=base"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.returncode == 1, run.stdout
    found = {}
    for test in ElementTree.parse(folder / "said.xml").iter("testcase"):
        texts = [f"{x.tag}: {x.text}" for x in test if x.tag != "skipped"]
        name = str(test.get("name"))
        found[name] = "\n".join([found.get(name, ""), *texts]).strip()
    return found


@pytest.mark.parametrize("name", LEAKS)
def test_what_is_left_behind_is_named(said, name):
    _, words = LEAKS[name]
    told = said[f"test_{name}"]
    begin = f"error: test_planted.py::test_{name} left behind:\n"
    assert told.startswith(begin)
    assert words in told
    assert told.count("left behind") == 1


def test_nothing_else_is_said_of_them(said):
    """What was put back is not found again, in the next test or the last."""
    lines = {name: said[f"test_{name}"].splitlines()[1:] for name in LEAKS}
    assert {name for name, told in lines.items() if len(told) > 1} == {
        "many_tensors",
        "a_number_of_devices_with_a_tensor",
        "a_machine",  # with another number of devices
        "a_stream_that_is_entered",  # it is the current one too
        "a_trace",  # that looks for races, in a mode
        "a_dtype",  # torch.Storage is another class
    }


def test_what_may_be(said):
    told = {
        name: said[name]
        for name in re.findall(r"def (test_\w+)", MAY_BE)
        if name != "test_fails"
    }
    assert len(told) == 10
    assert not any(told.values()), told


def test_the_registering_of_devices_is_taken_back(said):
    assert "a patch: torch.Generator was <" in said["test_torch_as_it_was"]


def test_one_that_fails_is_not_blamed_twice(said):
    assert said["test_fails"].startswith("failure: ")
    assert "left behind" not in said["test_fails"]


def test_fixtures_of_a_module(said):
    assert said["test_with_fixtures"] == ""
    assert said["test_afterwards"].startswith(
        "error: the fixtures of test_a_module.py, or a test that uses them, "
        "left behind:\n"
    )
    assert "the current device was 0, and is 1" in said["test_afterwards"]


def test_fixtures_of_the_session(said):
    told = said["test_of_the_session"]
    begin = "the fixtures of the session, or a test that uses them, left behi"
    assert f"error: {begin}" in told
    assert told.endswith("LEFT is new: '1'")


def test_an_example(said):
    told = said["test_examples.leaves"]
    assert told.endswith("the current device was 0, and is 1")
    assert said["test_examples.leaves_nothing"] == ""
