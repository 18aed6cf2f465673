"""Which backward is simulated, and which is PyTorch's own."""

import gc
import signal

import pytest
import torch

import dpkit


@pytest.fixture(autouse=True)
def _alive():
    """Keep a simulated graph alive beside what is tested."""
    dpkit.sim.register()
    w = torch.ones(3, device="sim:1", requires_grad=True)
    alive = (w * w).sum()
    yield
    del alive


def threads_in_backward(x, backward):
    """Tell whether autograd may use threads while ``backward`` runs."""
    seen = []
    handle = x.register_hook(
        lambda grad: seen.append(torch.autograd.is_multithreading_enabled())
    )
    backward()
    handle.remove()
    (answer,) = seen
    return answer


def on_cpu():
    return torch.ones(3, requires_grad=True)


def test_a_backward_on_the_cpu_is_pytorchs_own():
    x = on_cpu()
    y = (x * x).sum()
    assert threads_in_backward(x, lambda: y.backward(retain_graph=True))
    assert threads_in_backward(x, lambda: torch.autograd.grad(y, x))


def test_a_backward_from_an_edge_of_the_graph():
    x = on_cpu()
    edge = torch.autograd.graph.get_gradient_edge((x * x).sum())
    assert threads_in_backward(x, lambda: torch.autograd.backward([edge]))


@pytest.mark.parametrize("where", ["start", "middle", "leaf"])
def test_a_backward_with_one_simulated_tensor_is_simulated(where):
    x = on_cpu()
    if where == "start":
        y = (2 * x).to("sim:1").sum()
    elif where == "middle":
        y = (2 * x).to("sim:1").exp().cpu().sum()
    else:
        y = (x * torch.ones(3, device="sim:1", requires_grad=True).cpu()).sum()
    assert not threads_in_backward(x, y.backward)


class InterruptedInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lines):
        ctx.lines = lines
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        signal.raise_signal(signal.SIGINT)
        ctx.lines.append("went on")
        return grad, None


@pytest.mark.parametrize(
    ("device", "lines"), [("cpu", []), ("sim:1", ["went on"])]
)
def test_ctrl_c_waits_for_the_end_of_a_simulated_backward_alone(device, lines):
    found = []
    x = torch.ones(3, device=device, requires_grad=True)
    y = InterruptedInBackward.apply(x, found).sum()
    with pytest.raises(KeyboardInterrupt):
        y.backward()
    assert found == lines


class MixesInBackward(torch.autograd.Function):
    """On the CPU outside; its backward adds tensors of two devices."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return (grad.to("sim:1") + torch.ones(3, device="sim:0")).cpu()


def test_an_error_on_a_simulated_device_inside_pytorchs_own_backward():
    x = on_cpu()
    with pytest.raises(RuntimeError, match="same device"):
        MixesInBackward.apply(x).sum().backward()
    assert x.grad is None


def test_an_error_in_a_backward_inside_a_simulated_one():
    """What the inner one raises arrives when the outer one has ended."""

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                inner = on_cpu()
                MixesInBackward.apply(inner).sum().backward()
            return grad

    x = torch.ones(3, device="sim:1", requires_grad=True)
    with pytest.raises(RuntimeError, match="same device"):
        Inner.apply(x).sum().backward()
    x.grad = None
    x.sum().backward()  # and the next one is as ever
    assert x.grad.tolist() == [1, 1, 1]


def test_a_backward_that_fails_keeps_no_gradients():
    """PyTorch's engine would keep them until its next backward."""

    def fail():
        x, y = (
            torch.ones(3, device="sim:0", requires_grad=True) for _ in "xy"
        )
        result = x.exp().sum() + y.exp().sum()
        y.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            result.backward()

    fail()
    gc.collect()
    assert torch.sim.memory_allocated("sim:0") == 0


def test_a_storage_that_is_freed_before_backward_is_an_error():
    """As on the CPU; what stands in for the result must not be read."""
    X = torch.ones(2, 4, device="sim:1", requires_grad=True)
    w = torch.ones(4, 3, device="sim:1")
    Y = X @ w
    w.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="out of bounds for storage of si"):
        Y.sum().backward()
