"""Operations that come to simulated tensors from inside another dispatch.

There autograd has not taken apart what torch composes of others.
"""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dpkit

dpkit.sim.register()


class Inside(TorchDispatchMode):
    """Call a function inside the dispatch of the next operation."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.result = self.function()
        return func(*args, **(kwargs or {}))


def called_inside_a_mode(function):
    with Inside(function) as mode:
        torch.zeros(1)
    return mode.result


def called_below_autograd(function):
    with torch._C._AutoDispatchBelowAutograd():
        return function()


def called_plainly(function):
    with torch.no_grad():
        return function()


WAYS = [called_inside_a_mode, called_below_autograd]
X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("call", WAYS)
@pytest.mark.parametrize("start", ["cpu", "sim:0"])
def test_to_another_device(call, start):
    x = X.to(start)
    for moved in (
        call(lambda: x.to("sim:1")),
        call(lambda: x.to("sim:1", torch.float64)),
        call(lambda: x.to(torch.ones(1, device="sim:1"))),
    ):
        assert moved.device == torch.device("sim:1")
        assert torch.equal(moved.cpu().float(), X)
    back = call(lambda: x.cpu())
    assert back.device.type == "cpu"
    assert type(back) is torch.Tensor


COMPOSED = {
    "linear": lambda x: F.linear(x, x),
    "matmul": lambda x: x.matmul(x.T),
    "reshape": lambda x: x.T.reshape(2, 6),
    "cross_entropy": lambda x: F.cross_entropy(
        x, torch.arange(3, device=x.device)
    ),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
}


@pytest.mark.parametrize("call", WAYS)
@pytest.mark.parametrize("name", COMPOSED)
def test_what_torch_composes_is_taken_apart(call, name):
    """Values, device and time are those of a plain call."""
    results = []
    for how in (called_plainly, call):
        with dpkit.sim.machine():
            x = X.to("sim:1")
            start = dpkit.sim.now()
            y = how(lambda x=x: COMPOSED[name](x))
            torch.sim.synchronize(1)
            results.append((y.cpu(), y.device, dpkit.sim.now() - start))
    (plain, device, seconds), (inside, device_inside, seconds_inside) = results
    assert torch.equal(plain, inside)
    assert torch.equal(plain, COMPOSED[name](X))
    assert device == device_inside
    assert seconds_inside == seconds
