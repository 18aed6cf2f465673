"""``torch.Stream`` and ``torch.Event`` of simulated devices, and of others."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import (
    _apply_optimizer_in_backward,
    apply_optimizer_in_backward,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

import dpkit
from dpkit import sim


@pytest.fixture(autouse=True)
def _registered():
    dpkit.sim.register()


def test_for_a_simulated_device_they_are_those_of_torch_sim():
    stream = torch.Stream(device="sim:1")
    assert isinstance(stream, torch.sim.Stream)
    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("sim:1")
    event = torch.Event(device="sim:1", enable_timing=True)
    assert isinstance(event, torch.sim.Event)
    assert isinstance(event, torch.Event)


def test_without_a_device_they_are_for_the_accelerator():
    def kinds():
        return type(torch.Stream()).__name__, type(torch.Event()).__name__

    assert sim.launch(kinds, 2) == [("SimStream", "SimEvent")] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch uses a GPU here")
def test_outside_of_ranks_they_are_what_pytorch_makes():
    for stream in (torch.Stream(device="cpu"), torch.Stream()):
        assert not isinstance(stream, torch.sim.Stream)
        assert stream.device.type == "cpu"
    assert not isinstance(torch.Event(), torch.sim.Event)


def test_a_stream_is_entered_and_left():
    zero = torch.device("sim:0")
    stream, other = torch.Stream(device=zero), torch.Stream(device=zero)
    current = torch.sim.current_stream
    with stream:
        assert current(zero) == stream
        with other, stream:
            assert current(zero) == stream
        assert current(zero) == stream
    assert current(zero) == torch.sim.default_stream(zero)


@pytest.fixture
def _forgotten():
    """PyTorch keeps the parameters of such optimizers for ever."""
    yield
    apply_optimizer_in_backward.param_to_acc_grad_map.clear()
    apply_optimizer_in_backward.param_to_optim_hook_handle_map.clear()


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_optimizers_that_step_in_backward(kind):
    """The parameters are those of steps after backward."""

    def trained(in_backward):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
        layers.to("sim")
        if in_backward:
            _apply_optimizer_in_backward(
                kind, layers.parameters(), {"lr": 0.1}
            )
        net = DistributedDataParallel(
            layers, gradient_as_bucket_view=in_backward
        )
        optimizer = None if in_backward else kind(net.parameters(), lr=0.1)
        x = torch.ones(1, 2, device="sim") + dist.get_rank()
        for _ in range(3):
            net(x).square().sum().backward()
            if optimizer:
                optimizer.step()
                optimizer.zero_grad()
        return [p.tolist() for p in layers.parameters()]

    after, during = (sim.launch(trained, 2, flag) for flag in (False, True))
    assert during == after
    assert after[0] == after[1]


def test_mixed_precision_of_ddp_is_refused_by_name():
    def wrapped():
        half = _MixedPrecision(param_dtype=torch.bfloat16)
        layer = nn.Linear(2, 2).to("sim")
        DistributedDataParallel(layer, mixed_precision=half)

    with pytest.raises(RuntimeError, match=r"torch\.autocast, or FSDP2's"):
        sim.launch(wrapped, 2)
