"""Tests of dpkit.sim.tensors.tensor: inference tensors are known as such."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpkit import sim

sim.register()

# Made in inference mode of a parameter w, an ordinary tensor x, both of shape
# (2, 3), and y = x · w, which is an inference tensor.
MADE = {
    "a result": lambda w, x, y: x * 2,
    "a result of a parameter": lambda w, x, y: w * 2,
    "a result of a result": lambda w, x, y: y * 2,
    "a copy": lambda w, x, y: x.clone(),
    "a tensor": lambda w, x, y: torch.tensor([[1.0]], device=x.device),
    "zeros": lambda w, x, y: torch.zeros(2, device=x.device),
    "zeros like": lambda w, x, y: torch.zeros_like(x),
    "random numbers": lambda w, x, y: torch.rand(2, device=x.device) > 2,
    "composed": lambda w, x, y: F.linear(x, w),
    "composed of a result": lambda w, x, y: F.linear(y, w),
    "a convolution": lambda w, x, y: F.conv1d(x.t()[None], w[:, :, None]),
    "a norm": lambda w, x, y: F.batch_norm(x, None, None, training=True),
    "attention": lambda w, x, y: F.scaled_dot_product_attention(
        *[t[None, None] for t in (x, y, w)]
    ),
    "a loss": lambda w, x, y: F.cross_entropy(
        y, torch.tensor([1, 2], device=x.device)
    ),
    "several": lambda w, x, y: x.max(1),
    "a list": lambda w, x, y: torch._foreach_mul([x, y], 2.0),
    "a view": lambda w, x, y: x[0],
    "a view of a parameter": lambda w, x, y: w.view(3, 2),
    "a view of a result": lambda w, x, y: y.view(3, 2),
    "views": lambda w, x, y: [*x.chunk(2), *y.unbind()],
    "detached": lambda w, x, y: x.detach(),
    "a composed view": lambda w, x, y: x.flatten(),
    "a composed copy": lambda w, x, y: x.t().flatten(),
    "the same tensor": lambda w, x, y: x.to(x.device),
    "a copy to the CPU": lambda w, x, y: x.to("cpu", copy=True),
    "written": lambda w, x, y: x.mul_(2),
    "a written result": lambda w, x, y: y.mul_(2),
    "a turned result": lambda w, x, y: y.t_(),
    "a resized result": lambda w, x, y: y.resize_(1, 2),
    "written to out": lambda w, x, y: torch.add(x, y, out=y),
}
# Done afterwards with y; w requires a gradient.
USED = {
    "in a sum": lambda w, x, y: (w + y).square().sum().backward(),
    "saved for backward": lambda w, x, y: (w * y).sum().backward(),
    "composed": lambda w, x, y: F.linear(y, w).sum().backward(),
    "cloned": lambda w, x, y: (w * y.clone()).sum().backward(),
    "written to": lambda w, x, y: y.add_(1),
    "a view written to": lambda w, x, y: y[0].add_(1),
    "made to require a gradient": lambda w, x, y: y.requires_grad_(),
    "read": lambda w, x, y: x.copy_(y),
    "a result": lambda w, x, y: y + 1,
    "a composed result": lambda w, x, y: F.linear(y, y),
    "attention": lambda w, x, y: F.scaled_dot_product_attention(
        *[y[None, None]] * 3
    ),
    "a view": lambda w, x, y: y[1:],
    "a composed view": lambda w, x, y: y.reshape(3, 2),
    "its data": lambda w, x, y: y.data,
    "where it is": lambda w, x, y: y.to(y.device),
}


def operands(device):
    w = torch.arange(6.0, device=device).view(2, 3).requires_grad_()
    x = torch.arange(6.0, device=device).view(2, 3) - 2
    with torch.inference_mode():
        return w, x, x * w


def described(made):
    """Return what is known of tensors, and their numbers."""
    tensors = [made] if isinstance(made, torch.Tensor) else made or []
    return [(t.is_inference(), t.requires_grad, t.tolist()) for t in tensors]


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_in_inference_mode(name):
    found = []
    for device in ("cpu", "sim:1"):
        w, x, y = operands(device)
        with torch.inference_mode():
            made = MADE[name](w, x, y)
        found.append([*described(made), *described([x, y])])
    assert found[1] == found[0]


@pytest.mark.parametrize("name", USED)
def test_what_an_inference_tensor_is_good_for_later(name):
    found = []
    for device in ("cpu", "sim:1"):
        w, x, y = operands(device)
        try:
            made = described(USED[name](w, x, y))
        except RuntimeError as error:
            made = str(error)
        gradient = None if w.grad is None else w.grad.tolist()
        found.append((made, gradient, described([x, y])))
    assert found[1] == found[0]


def test_the_database_has_both_kinds():
    """That nothing above passes because nothing is marked or refused."""
    w, x, y = operands("sim:1")
    assert y.is_inference()
    assert not x.is_inference()
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        USED["saved for backward"](w, x, y)


def test_a_module_that_is_moved_in_inference_mode():
    """It is trained no more, as one that is converted there on the CPU."""
    found = []
    for change in ("double", "sim:1"):
        net = nn.Linear(3, 2)
        with torch.inference_mode():
            net.double() if change == "double" else net.to(change)
        out = net(torch.ones_like(net.weight))
        out.sum().backward()
        found.append(
            (net.weight.is_inference(), out.requires_grad, net.weight.grad)
        )
    assert found[1] == found[0]
    assert found[0][0]


def test_a_module_moved_there_with_its_output_alive():
    net = nn.Linear(3, 2)
    alive = net(torch.ones(1, 3)).sum()
    with torch.inference_mode():
        net.to("sim:1")
    with pytest.raises(RuntimeError, match="moved since the forward pass"):
        alive.backward()


def half(net):
    return net.half()


def to_another(net):
    return net.to("sim:2")


@pytest.mark.parametrize("change", [half, to_another])
@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("changed_inside", [False, True])
def test_a_module_changes_in_and_out_of_the_mode(
    change, made_inside, changed_inside
):
    with torch.inference_mode(made_inside):
        net = nn.Linear(2, 3).to("sim:1")
    weight = net.weight.detach().cpu()
    with torch.inference_mode(changed_inside):
        assert change(net) is net
    after = net.weight.detach().float().cpu()
    assert torch.allclose(after, weight, atol=1e-3)
    assert net.weight.dtype == change(nn.Linear(1, 1)).weight.dtype
    x = torch.ones(1, 2, device=net.weight.device, dtype=net.weight.dtype)
    with torch.no_grad():
        assert net(x).shape == (1, 3)
