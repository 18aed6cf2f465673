"""What simulated devices change in torch: all of it, or nothing."""

import json
import re
import subprocess
import sys

import pytest

from dpkit.sim import supported
from dpkit.sim.patches import PATCHES

# Each child takes out of torch what one patch needs, or lets it fail.
PROGRAM = r"""
import gc, json, os, sys, traceback
import torch.distributed.tensor  # torch imports it late
import torch
from torch import nn
from torch.optim import optimizer
from torch.utils import _foreach_utils, backend_registration
import dpkit
from dpkit.sim import patches

library = torch.library.Library
TAKE_OUT = {
    "torch.autograd.graph._engine_run_backward": torch.autograd.graph,
    "torch.autograd._engine_run_backward": torch.autograd,
    "Module._apply": nn.Module,
    "torch.Generator": torch,
    "UntypedStorage.resize_": torch.UntypedStorage,
    "torch.optim.optimizer._foreach_supported_types": optimizer,
    "torch.utils._foreach_utils._foreach_supported_types": _foreach_utils,
    "torch.optim.optimizer.register_optimizer_step_post_hook": optimizer,
    "torch.serialization.register_package":
        (torch.serialization, "_package_registry"),
    "the kernels of CPU": "aten::is_pinned",
    "the kernels of PrivateUse1": "aten::_copy_from",
    "the kernels of AutogradPrivateUse1": "aten::_thnn_fused_lstm_cell",
    "the kernels of AutocastPrivateUse1": "aten::linear",
    "what passes AutocastPrivateUse1": (library, "fallback"),
    "the name and module of PrivateUse1":
        (backend_registration, "_setup_privateuseone_for_python_backend"),
}


def torch_now():
    "Return what of torch a patch may change."
    return {
        "engines": [id(m.__dict__.get("_engine_run_backward"))
                    for m in (torch.autograd, torch.autograd.graph)],
        "apply": id(nn.Module.__dict__.get("_apply")),
        "resize": id(torch.UntypedStorage.resize_),
        "generator": id(torch.__dict__.get("Generator")),
        "foreach": [str(m.__dict__.get("_foreach_supported_types"))
                    for m in (optimizer, _foreach_utils)],
        "hooks": len(optimizer._global_optimizer_post_hooks),
        "loading": len(torch.serialization.__dict__.get(
            "_package_registry", ())),
        "kernels": [torch._C._dispatch_dump(f"aten::{name}") for name in (
            "is_pinned", "zeros", "mm", "scaled_dot_product_attention")],
        "name": torch._C._get_privateuse1_backend_name(),
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


def without(owner, name, otherwise=None):
    "Take a name away; return what puts it back."
    if name not in vars(owner):  # inherited from a class of C++
        setattr(owner, name, None)
        return lambda: delattr(owner, name)
    taken = getattr(owner, name)
    delattr(owner, name)
    if otherwise:
        setattr(owner, name, otherwise)
    return lambda: setattr(owner, name, taken)


def plant(patch, number, planted):
    if planted == "apply":
        patches.PATCHES[number] = patches.Patch(patch.name, patch.fits, fail)
        return lambda: patches.PATCHES.__setitem__(number, patch)
    lacking = TAKE_OUT[patch.name]
    if isinstance(lacking, str):  # an operation
        has = torch._C._dispatch_has_kernel
        return without(torch._C, "_dispatch_has_kernel",
                       lambda name: name != lacking and has(name))
    if isinstance(lacking, tuple):
        return without(*lacking)
    return without(lacking, patch.name.rpartition(".")[2])


def child(number, planted):
    restore = plant(patches.PATCHES[number], number, planted)
    before = torch_now()
    found = {"first": message(), "second": message()}
    after = torch_now()
    found["changed"] = [k for k in before if before[k] != after[k]]
    restore()
    patches._failure = None
    found["later"] = message()
    x = torch.ones(3, device="sim:1", requires_grad=True)
    with torch.autocast("sim", torch.bfloat16):
        (x * 2).sum().backward()
    found["grad"] = str(x.grad)
    return found


patches._all_kernels()  # looked for once, and not in every child
torch.ones(3, requires_grad=True).sum()  # so with what torch loads late
gc.freeze()  # or every child would look through all of it
for number in range(len(patches.PATCHES)):
    for planted in ("probe", "apply"):
        sys.stdout.flush()
        if not os.fork():
            try:
                found = child(number, planted)
            except BaseException:
                found = {"first": traceback.format_exc()}
            name = patches.PATCHES[number].name
            print(json.dumps([name, planted, found]), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def planted():
    """Plant a failure at each patch, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert not run.returncode, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return {(name, what): found for name, what, found in lines}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("what", ["probe", "apply"])
@pytest.mark.parametrize("name", [patch.name for patch in PATCHES])
def test_a_patch_that_fails_leaves_torch_as_it_was(planted, name, what):
    found = planted[name, what]
    assert f"patch: {name}, " in found["first"], found["first"]
    reason = "planted" if what == "apply" else "this torch lacks"
    assert f"reason: {reason}" in found["first"]
    assert found["second"] == found["first"]
    assert found["changed"] == []
    # All of it was undone: it can be done once more.
    assert found["later"] == "no error"
    assert found["grad"] == "tensor([2., 2., 2.], device='sim:1')"


def test_another_backend_holds_the_place():
    program = (
        "import torch, dpkit\n"
        "torch.utils.rename_privateuse1_backend('npu')\n"
        "dpkit.devices(2, kind='sim')"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert "another backend holds" in run.stderr
    assert "(backend: 'npu')" in run.stderr


def test_torch_without_a_private_name_is_refused():
    program = (
        "import torch.utils._python_dispatch as d, dpkit\n"
        "del d.return_and_correct_aliasing\n"
        "dpkit.devices(2, kind='sim')"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    last = run.stderr.splitlines()[-1]
    assert re.match("RuntimeError: simulated devices do not fit", last), last
    assert "return_and_correct_aliasing" in last


@pytest.mark.parametrize("version", ["2.11.0", "2.13.1+cu130", "2.15.0"])
def test_torch_in_the_tried_range(version, recwarn):
    supported.check_torch_version(version)
    assert not recwarn


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0a0"])
def test_a_newer_torch_is_warned_of(version):
    with pytest.warns(UserWarning, match=r"tried: 2\.11, 2\.13, 2\.15"):
        supported.check_torch_version(version)


def test_an_older_torch_is_refused():
    with pytest.raises(RuntimeError, match=r"tried: 2\.11, 2\.13, 2\.15"):
        supported.check_torch_version("2.10.2")
