"""GPUs and simulated devices in one process, or one kind of them alone."""

import threading

import pytest
import torch
from torch import nn

import dpkit
from dpkit.sim.changes import mixed_backends
from dpkit.sim.tensors import backward

REASON = "planted"


def loss_on(device):
    """Return a leaf on a device, and the sum of its double."""
    x = torch.ones(3, device=device, requires_grad=True)
    return x, (x * 2).sum()


class Between(torch.autograd.Function):
    """What passes through it unchanged calls a function in backward."""

    @staticmethod
    def forward(ctx, x, call):
        ctx.call = call
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.call()
        return gradient, None


@pytest.fixture
def gpus(need_gpus):
    need_gpus(1)
    dpkit.sim.register()
    return dpkit.devices(kind="cuda")


@pytest.mark.cuda
def test_backward_on_all_gpus_after_sim_was_registered(gpus):
    parts = [loss_on(device) for device in gpus]
    sum(loss.to(gpus[0]) for _, loss in parts).backward()
    assert all(x.grad.tolist() == [2, 2, 2] for x, _ in parts)
    x, loss = loss_on("sim:1")
    loss.backward()
    assert x.grad.tolist() == [2, 2, 2]
    x, loss = loss_on(gpus[-1])
    loss.backward()
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.cuda
def test_a_number_means_a_gpu(gpus):
    last = len(gpus) - 1
    assert torch.device(last) == gpus[-1]
    assert torch.ones(1).to(last).device == gpus[-1]
    assert nn.Linear(1, 1).to(last).weight.device == gpus[-1]
    assert torch.Stream(last).device == gpus[-1]
    assert torch.accelerator.current_accelerator().type == "cuda"


@pytest.mark.cuda
def test_names_of_simulated_devices_hold_in_a_backward_on_gpus(gpus):
    seen = []
    x, _ = loss_on(gpus[0])
    made = Between.apply(
        x, lambda: seen.append(torch.ones(2, device="sim:1").device)
    )
    made.sum().backward()
    assert seen == [torch.device("sim:1")]


@pytest.mark.cuda
def test_a_backward_of_the_other_kind_inside_of_one_is_refused(gpus):
    for outer, inner in ((gpus[0], "sim:1"), ("sim:1", gpus[0])):
        x, _ = loss_on(outer)
        _, loss = loss_on(inner)
        with pytest.raises(RuntimeError, match="inside of each other"):
            Between.apply(x, loss.backward).sum().backward()
        for device in (outer, inner):
            _, loss = loss_on(device)
            loss.backward()


@pytest.fixture
def beside_a_backward():
    """Give a function that does something while another thread is in one."""

    def beside(device, work):
        begun, go_on = threading.Event(), threading.Event()

        def wait():
            begun.set()
            assert go_on.wait(1200)

        x, _ = loss_on(device)
        loss = Between.apply(x, wait).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        try:
            assert begun.wait(1200)
            return work()
        finally:
            go_on.set()
            thread.join()
            assert x.grad.tolist() == [1, 1, 1]

    return beside


@pytest.mark.cuda
def test_a_backward_of_the_other_kind_runs_in_another_thread(
    gpus, beside_a_backward
):
    def train(device):
        x, loss = loss_on(device)
        loss.backward()
        return x.grad.tolist()

    for outer, inner in ((gpus[0], "sim:1"), ("sim:1", gpus[-1])):
        found = beside_a_backward(outer, lambda inner=inner: train(inner))
        assert found == [2, 2, 2]


@pytest.mark.cuda
def test_a_number_means_a_gpu_beside_a_simulated_backward(
    gpus, beside_a_backward
):
    last = len(gpus) - 1

    def work():
        parallel = nn.DataParallel(nn.Linear(2, 2).to(gpus[0]))
        parallel(torch.ones(4, 2, device=gpus[0])).sum().backward()
        return [
            torch.device(last),
            torch.ones(2).to(last).device,
            torch.Stream(last).device,
            parallel.module.weight.grad.device,
        ]

    assert beside_a_backward("sim:1", work) == [gpus[-1]] * 3 + [gpus[0]]


@pytest.mark.cuda
def test_the_graph_of_a_backward_on_gpus_is_walked_once(gpus, monkeypatch):
    walks = []
    nodes = backward.nodes
    monkeypatch.setattr(
        backward, "nodes", lambda outputs: walks.append(1) or nodes(outputs)
    )
    loss_on(gpus[0])[1].backward()
    assert len(walks) == 1


@pytest.mark.cuda
def test_a_backward_from_one_kind_to_the_other_is_refused(gpus):
    for first, second in ((gpus[0], "sim:1"), ("sim:1", gpus[0])):
        _, loss = loss_on(first)
        with pytest.raises(RuntimeError, match="detach"):
            loss.to(second).backward()
        x, loss = loss_on(second)
        (loss * loss_on(first)[1].detach().to(second)).backward()
        assert x.grad.tolist() == [12, 12, 12]


INTERRUPTED = """
import torch, dpkit
from dpkit.sim.changes import mixed_backends
from dpkit.sim.changes import change as patching

def interrupt():
    raise KeyboardInterrupt

def train(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    return x.grad.tolist()

real_devices = mixed_backends.real_devices
mixed_backends.real_devices = interrupt
try:
    dpkit.sim.register()
except KeyboardInterrupt:
    print(train("cuda:0"))
mixed_backends.real_devices = real_devices
dpkit.sim.register()
print(train("cuda:0"), train("sim:1"))
patching.undo_all()
print(train("cuda:0"))
"""


@pytest.mark.cuda
def test_gpus_train_whatever_becomes_of_the_registering(need_gpus, run_new):
    """Also if it is interrupted while the driver is asked, or taken back."""
    need_gpus(1)
    grad = "[2.0, 2.0, 2.0]"
    assert run_new(INTERRUPTED) == f"{grad}\n{grad} {grad}\n{grad}\n"


# -- where PyTorch's C++ cannot be given GPUs for its accelerator


@pytest.fixture
def apart(monkeypatch):
    """Make the probe fail, as it does on a PyTorch that is built otherwise."""
    if mixed_backends.has_gpus():  # registered for both already, which stays
        monkeypatch.setattr(mixed_backends._state, "choice", None)
    monkeypatch.setattr(mixed_backends, "_choice", lambda: REASON)


def test_simulated_devices_take_the_place_of_gpus(apart, monkeypatch):
    gpus = [torch.device("cuda", i) for i in range(2)]
    monkeypatch.setattr("dpkit.machine.real_devices", lambda: gpus)
    held = []
    monkeypatch.setattr(dpkit.machine, "hold_on_gpu", lambda: held.append(1))
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    with pytest.warns(UserWarning, match=r"\(GPUs: 2, reason: planted\)"):
        found = dpkit.devices(2)
    assert [device.type for device in found] == ["sim", "sim"]
    assert held == [1]
    assert dpkit.devices(2, kind="cuda") == gpus
    monkeypatch.setenv("DPKIT_DEVICES", "cuda")
    assert dpkit.devices(2) == gpus


def test_without_gpus_nothing_is_said(apart, monkeypatch, recwarn):
    monkeypatch.setattr("dpkit.machine.real_devices", list)
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    assert dpkit.devices(1)[0].type == "sim"
    assert not recwarn.list


def test_a_backward_on_gpus_is_refused_by_name(apart):
    with (
        pytest.raises(RuntimeError, match=r"reason: planted.*DPKIT_DEVICES"),
        mixed_backends.backward_on({"cpu", "cuda"}),
    ):
        pass
    for kinds in ({"cpu"}, {"sim", "cpu"}, set()):
        with mixed_backends.backward_on(kinds):
            pass


# A process of one kind, from its first line on.
PROGRAM = """
import warnings, torch, dpkit
from dpkit.sim.changes import mixed_backends
mixed_backends._choice = lambda: "planted"
warnings.simplefilter("ignore")
net = torch.nn.Linear(4, 2, device="cuda:0")
net(torch.ones(3, 4, device="cuda:0")).sum().backward()
print("cuda", net.weight.grad.sum().item())
one, two = dpkit.devices(1) + dpkit.devices(2)[1:]
parallel = dpkit.DataParallel(torch.nn.Linear(4, 2).to(one), [one, two])
parallel(torch.ones(3, 4)).sum().backward()
weight = parallel.module.weight
print(weight.device, weight.backing.device, weight.grad.sum().item())
try:
    net(torch.ones(3, 4, device="cuda:0")).sum().backward()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.cuda
def test_a_process_of_one_kind_trains_on_simulated_devices(need_gpus, run_new):
    need_gpus(1)
    first, second, third = run_new(PROGRAM).splitlines()
    assert first == "cuda 24.0"
    assert second == "sim:0 cuda:0 24.0"
    assert "reason: planted" in third
