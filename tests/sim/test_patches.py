"""What simulated devices change in torch: all of it, or nothing."""

import json
import re
import sys

import pytest

from dpkit.sim import check_torch_version
from dpkit.sim.patches import PATCHES

# Each child takes out of torch what one patch needs, or lets it fail.
PROGRAM = r"""
import gc, json, os, pkgutil, sys, traceback
import torch.distributed.tensor  # torch imports it late
import torch
from torch.optim import optimizer
import dpkit
from dpkit.sim import patches
from dpkit.sim.changes import change as patching

# What a patch needs, where its name does not say so.
NEEDS = {
    "the name and module of PrivateUse1":
        "torch.utils.backend_registration."
        "_setup_privateuseone_for_python_backend",
    "torch.serialization.register_package":
        "torch.serialization._package_registry",
}
OPERATIONS = {
    "aten for CPU": "is_pinned",
    "aten for PrivateUse1": "_copy_from",
    "aten for AutogradPrivateUse1": "_thnn_fused_lstm_cell",
    "aten for AutocastPrivateUse1": "linear",
    "aten for Meta": "_masked_softmax",
    "c10d for AutogradPrivateUse1": "allreduce_",
    "_c10d_functional for AutogradPrivateUse1": "all_reduce",
    "_c10d_functional_autograd for AutogradPrivateUse1": "all_to_all_single",
    "_dtensor for AutogradPrivateUse1": "shard_dim_alltoall",
}
SAMPLES = [
    "aten::is_pinned", "aten::zeros", "aten::mm", "aten::add.Tensor",
    "aten::scaled_dot_product_attention", "aten::_masked_softmax",
    "c10d::allreduce_",
    "_c10d_functional::all_reduce", "_dtensor::shard_dim_alltoall",
]
MISSING = object()


def place(patch):
    "Return the owner and the name of what a patch changes."
    path = NEEDS.get(patch.name, patch.name)
    owner, _, name = path.rpartition(".")
    return pkgutil.resolve_name(owner), name


def is_path(patch):
    return not patch.name.startswith("the ")


def torch_now():
    "Return what of torch a patch may change."
    found = {}
    for patch in filter(is_path, patches.PATCHES):
        value = getattr(*place(patch), MISSING)
        shown = list(value) if isinstance(value, list) else id(value)
        found[patch.name] = str(shown)
    dump = torch._C._dispatch_dump
    return found | {
        "kernels": [dump(name) for name in SAMPLES],
        "hooks": len(optimizer._global_optimizer_post_hooks),
        "loading": len(torch.serialization._package_registry or ()),
        "name": torch._C._get_privateuse1_backend_name(),
        "backends": list(torch.distributed.Backend.backend_list),
        "module": hasattr(torch, "sim"),
    }


def message():
    try:
        dpkit.sim.register()
    except RuntimeError as error:
        return str(error)
    return "no error"


def fail(*_):
    raise ValueError("planted")


def put(owner, name, value):
    "Put a value in the place of another; return what puts that back."
    if name in vars(owner):
        before = vars(owner)[name]
        setattr(owner, name, value)
        return lambda: setattr(owner, name, before)
    setattr(owner, name, value)  # what was inherited, or not there
    return lambda: delattr(owner, name)


def take_out(patch):
    "Take away what a patch needs; return what puts it back."
    kind, _, what = patch.name.partition(" of ")
    if kind == "the kernels":
        namespace, _, _ = what.partition(" ")
        lacking = f"{namespace}::{OPERATIONS[what]}"
        has = torch._C._dispatch_has_kernel
        return put(torch._C, "_dispatch_has_kernel",
                   lambda name: name != lacking and has(name))
    if kind == "the fallback":
        return put(torch._C.DispatchKey, what, None)
    return put(*place(patch), None)


def plant(number, planted):
    patch = patches.PATCHES[number]
    if planted == "probe":
        return take_out(patch)
    patches.PATCHES[number] = patches.Patch(patch.name, patch.fits, fail)
    return lambda: patches.PATCHES.__setitem__(number, patch)


def child(number, planted):
    restore = plant(number, planted)
    before = torch_now()
    found = {"first": message(), "second": message()}
    after = torch_now()
    found["changed"] = [k for k in before if before[k] != after[k]]
    restore()
    if number == len(patches.PATCHES) - 1:  # all others had been applied
        patching._failure = None
        found["later"] = message()
        x = torch.ones(3, device="sim:1", requires_grad=True)
        with torch.autocast("sim", torch.bfloat16):
            (x * 2).sum().backward()
        found["grad"] = str(x.grad)
    return found


patches._all_kernels()  # looked for once, and not in every child
gc.freeze()  # or every child would look through all of it
for number, planted in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if not os.fork():
        try:
            found = child(number, planted)
        except BaseException:
            found = {"first": traceback.format_exc()}
        print(json.dumps([number, planted, found]), flush=True)
        os._exit(0)
    os.wait()
"""


# Each patch has a probe of its own. What is applied is undone by one loop: it
# has to undo none, some, and all others.
LAST = len(PATCHES) - 1
PLACES = [(number, "probe") for number in range(len(PATCHES))]
PLACES += [(number, "apply") for number in (0, LAST // 2, LAST)]


@pytest.fixture(scope="module")
def planted(forking):
    """Plant a failure at each place, in a process of its own."""
    run = forking.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(PLACES)],
        stdout=forking.PIPE,
        stderr=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    out, errors = run.communicate()
    assert not run.returncode, errors
    lines = [json.loads(line) for line in out.splitlines()]
    return {(number, what): found for number, what, found in lines}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(("number", "what"), PLACES)
def test_a_patch_that_fails_leaves_torch_as_it_was(planted, number, what):
    found = planted[number, what]
    assert f"patch: {PATCHES[number].name}, " in found["first"]
    reason = "planted" if what == "apply" else "this torch lacks"
    assert f"reason: {reason}" in found["first"]
    assert found["second"] == found["first"]
    assert found["changed"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_what_was_undone_can_be_done_once_more(planted):
    found = planted[LAST, "apply"]
    assert found["later"] == "no error"
    assert found["grad"] == "tensor([2., 2., 2.], device='sim:1')"


@pytest.fixture
def errors_of(forking):
    """Run a program in a process of its own; return what it says of errors."""

    def run(program):
        process = forking.Popen(
            [sys.executable, "-c", program],
            stderr=forking.PIPE,
            text=True,
            start_new_session=True,
        )
        return process.communicate()[1]

    return run


def test_another_backend_holds_the_place(errors_of):
    program = (
        "import torch, dpkit\n"
        "torch.utils.rename_privateuse1_backend('npu')\n"
        "dpkit.devices(2, kind='sim')"
    )
    message = errors_of(program)
    assert "another backend holds" in message
    assert "(backend: 'npu')" in message


def test_torch_without_a_private_name_is_refused(errors_of):
    program = (
        "import torch._tensor_str as d, dpkit\n"
        "del d._add_suffixes\n"
        "dpkit.devices(2, kind='sim')"
    )
    last = errors_of(program).splitlines()[-1]
    assert re.match("RuntimeError: simulated devices do not fit", last), last
    assert "_add_suffixes" in last


@pytest.mark.parametrize("version", ["2.11.0", "2.13.1+cu130", "2.15.0"])
def test_torch_in_the_tried_range(version, recwarn):
    check_torch_version(version)
    assert not recwarn


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0a0"])
def test_a_newer_torch_is_warned_of(version):
    with pytest.warns(UserWarning, match=r"tried: 2\.11, 2\.13, 2\.15"):
        check_torch_version(version)


def test_an_older_torch_is_refused():
    with pytest.raises(RuntimeError, match=r"tried: 2\.11, 2\.13, 2\.15"):
        check_torch_version("2.10.2")


def test_a_second_thread_waits_for_the_first(errors_of):
    program = """
import threading, torch, dpkit
found = []

def use(start=threading.Barrier(6)):
    start.wait()
    dpkit.sim.register()
    found.append(torch.ones(2, device="sim:0").sum().item())

threads = [threading.Thread(target=use) for _ in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
assert found == [2.0] * 6, found
"""
    assert errors_of(program) == ""
