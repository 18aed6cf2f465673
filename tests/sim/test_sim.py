"""Tests of dpkit.sim: strict as CUDA, and equal to the CPU to the bit."""

import copy
import io
import pickle
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils.checkpoint import checkpoint

from dpkit import sim
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.tensors.tensor import SimTensor
from tests.forked_python import start

sim.register()
sim.register()  # once more is no harm

MIXTURE = (
    "Expected all tensors to be on the same device, but found at least two "
    "devices, {} and {}!"
)


def mixes(first, second):
    return pytest.raises(RuntimeError, match=MIXTURE.format(first, second))


# ------------------------------------------------------------ the devices


def test_tensors_are_made_on_their_device():
    made = [
        torch.zeros(2, 3, device="sim:1"),
        torch.tensor([[1.0, 2.0]], device="sim:1"),
        torch.arange(3, device="sim:1"),
        torch.randn(2, device="sim:1"),
        torch.empty(2, device="sim:1"),
        torch.zeros(2).to("sim:1"),
        torch.zeros_like(torch.zeros(2), device="sim:1"),
        torch.zeros(2, device="sim:1").new_ones(3),
        torch.linspace(0, 1, 5, device="sim:1"),
        torch.eye(2, device="sim:1"),
    ]
    assert {str(tensor.device) for tensor in made} == {"sim:1"}
    assert made[1].tolist() == [[1, 2]]
    assert made[1].new_tensor([3]).device == made[1].device
    assert made[1].new_tensor([3]).dtype == torch.float32


def test_leaving_for_another_kind_of_device():
    x = torch.ones(2, device="sim:1")
    assert type(x.to("meta")) is torch.Tensor
    assert x.to("meta").device.type == "meta"


def test_numbers_of_tensors_make_a_tensor():
    losses = [torch.tensor(1.5, device="sim:1"), torch.tensor(2.5)]
    assert torch.tensor(losses).tolist() == [1.5, 2.5]


def test_plain_sim_is_the_current_device():
    assert str(torch.zeros(2, device="sim").device) == "sim:0"
    assert str(torch.zeros(2).to("sim").device) == "sim:0"


def test_device_that_is_not_there():
    words = r"invalid device ordinal \(device: sim:8, simulated devices: 8\)"
    with pytest.raises(RuntimeError, match=words):
        torch.zeros(2, device="sim:8")
    with pytest.raises(RuntimeError, match=words):
        torch.zeros(2).to("sim:8")


def test_torch_sim_is_there():
    assert torch.sim.device_count() == 8
    assert torch.sim.is_available()
    assert torch.sim.is_initialized()
    assert torch.sim.current_device() == 0


def test_seed_decides_random_numbers():
    torch.manual_seed(3)
    on_sim = torch.randn(5, device="sim:2")
    torch.manual_seed(3)
    assert torch.equal(on_sim.cpu(), torch.randn(5))


# ---------------------------------------------------- two devices do not mix


@pytest.fixture
def a():
    return torch.ones(3, 4, device="sim:1")


def test_mixing_two_devices(a):
    with mixes("sim:1", "sim:0"):
        a + torch.ones(3, 4, device="sim:0")
    with mixes("sim:1", "cpu"):
        a + torch.ones(3, 4)
    with mixes("sim:1", "cpu"):
        torch.mm(a, torch.ones(4, 2))
    with mixes("sim:1", "sim:0"):
        torch.cat([a, torch.ones(3, 4, device="sim:0")])
    with mixes("sim:1", "sim:0"):
        a.add_(torch.ones((), device="sim:0"))


def test_a_cpu_number_may_be_read_and_not_written(a):
    assert (a + torch.tensor(2.0)).sum() == 36
    assert (torch.tensor(2.0) * a).device == a.device
    with mixes("sim:1", "cpu"):
        torch.tensor(1.0).add_(torch.ones((), device="sim:1"))
    with mixes("sim:1", "cpu"):
        torch.add(a[0, 0], 1, out=torch.tensor(1.0))
    with mixes("cpu", "sim:1"):
        torch.ones(3) + torch.ones((), device="sim:1")


def test_a_cpu_number_is_no_part_and_no_index(a):
    with mixes("sim:1", "cpu"):
        torch.stack([a[0, 0], torch.tensor(1.0)])
    with mixes("sim:1", "cpu"):
        a.index_select(0, torch.tensor(1))
    with mixes("sim:1", "cpu"):
        F.embedding(torch.tensor(1), a)


def test_indices_may_be_on_the_cpu(a):
    for rows in (torch.tensor([0, 2]), torch.tensor([True, False, True])):
        assert a[rows].shape == (2, 4)
        assert a[rows.to("sim:1")].device == a.device
    a[torch.tensor([1])] = 5.0
    assert a.sum() == 28
    row = torch.zeros(4, device="sim:1")
    assert a.index_put((torch.tensor([1]),), row).sum() == 8
    with mixes("sim:1", "sim:0"):
        a[torch.tensor([0], device="sim:0")]
    with mixes("cpu", "sim:1"):
        torch.ones(3)[torch.tensor([0], device="sim:1")]


def test_copies_cross_devices(a):
    b = torch.zeros(3, 4, device="sim:0")
    b.copy_(a)
    b[:] += 1 * a.to("sim:0")
    c = torch.zeros(3, 4)
    c[:] = b
    assert c.sum() == 24
    assert a.sum() == 12


def test_list_operations_take_a_device_per_position():
    params = [torch.ones(2, device=f"sim:{i}") for i in range(3)]
    doubled = torch._foreach_mul(params, 2.0)
    assert [str(t.device) for t in doubled] == ["sim:0", "sim:1", "sim:2"]
    torch._foreach_add_(params, doubled)
    assert [t.tolist() for t in params] == [[3, 3]] * 3
    with mixes("sim:0", "sim:2"):
        torch._foreach_add(params, doubled[::-1])
    torch._foreach_copy_(params, [torch.zeros(2)] * 3)
    assert [t.tolist() for t in params] == [[0, 0]] * 3


def test_numpy_is_refused(a):
    words = "can't convert sim:1 device type tensor to numpy. Use Tensor.cpu"
    with pytest.raises(TypeError, match=words):
        a.numpy()
    with pytest.raises(TypeError, match=words):
        np.asarray(a)
    assert a.numpy(force=True).sum() == 12
    assert a.cpu().numpy().sum() == 12


# ----------------------------------------------------------------- autograd


def test_gradients_cross_devices():
    w = torch.randn(4, 2, requires_grad=True)
    v = torch.randn(2, 3, requires_grad=True)
    x = torch.randn(5, 4)
    (x @ w @ v).square().sum().backward()
    w1 = w.detach().to("sim:1").requires_grad_()
    v0 = v.detach().to("sim:0").requires_grad_()
    ((x.to("sim:1") @ w1).to("sim:0") @ v0).square().sum().backward()
    assert str(w1.grad.device) == "sim:1"
    assert torch.equal(w1.grad.cpu(), w.grad)
    assert torch.equal(v0.grad.cpu(), v.grad)


class Backward(torch.autograd.Function):
    """The identity, with a backward of our choice."""

    @staticmethod
    def forward(ctx, x, backward):
        ctx.run = backward
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.run(grad), None


def test_mixture_inside_backward(a):
    x = a.requires_grad_()
    y = Backward.apply(x, lambda g: g + torch.ones(3, 4, device="sim:0"))
    with mixes("sim:1", "sim:0"):
        y.sum().backward()
    # The process lives on, and the next backward is right.
    x.grad = None
    x.square().sum().backward()
    assert torch.equal(x.grad, 2 * x)


def test_wrong_shape_inside_backward(a):
    x = a.requires_grad_()
    y = Backward.apply(x, lambda g: g @ torch.ones(7, 7, device="sim:1"))
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied"):
        y.sum().backward()


def test_first_of_two_errors_inside_backward(a):
    x = a.requires_grad_()
    y = Backward.apply(x, lambda g: g + torch.ones(3, 4, device="sim:2"))
    z = Backward.apply(y, lambda g: g + torch.ones(3, 4, device="sim:3"))
    with mixes("sim:1", "sim:3"):
        z.sum().backward()


def test_mixture_in_a_hook(a):
    x = a.requires_grad_()
    y = x * 2
    y.register_hook(lambda g: g + torch.ones(3, 4))
    with mixes("sim:1", "cpu"):
        y.sum().backward()


def test_backward_from_a_second_thread(a):
    x = a.requires_grad_()
    y = x.square()
    gradient = torch.ones_like(y)
    thread = threading.Thread(target=y.backward, args=[gradient])
    thread.start()
    thread.join()
    assert torch.equal(x.grad, 2 * x)


def test_gradient_given_on_another_device(a):
    y = a.requires_grad_() * 2
    with mixes("sim:1", "sim:0"):
        y.backward(torch.ones(3, 4, device="sim:0"))


def test_gradient_left_on_another_device(a):
    """CUDA refuses it in backward; here it is refused when it is read."""
    x = a.requires_grad_()
    Backward.apply(x, lambda g: g.to("sim:0")).sum().backward()
    with pytest.raises(RuntimeError, match="expected device sim:1 but got"):
        torch.optim.SGD([x], 0.1).step()


def test_mixture_inside_backward_of_a_cpu_tensor():
    for hooked in (True, False):
        x = torch.ones(3, requires_grad=True)
        mix = lambda g: g + torch.ones(3, device="sim:0")  # noqa: E731
        y = x * 2 if hooked else Backward.apply(x, mix)
        if hooked:
            y.register_hook(mix)
        with mixes("cpu", "sim:0"):
            y.sum().backward()


@pytest.mark.parametrize("where", ["tensor", "leaf", "accumulated", "module"])
def test_any_error_in_a_hook_arrives(where):
    """Leaving the engine with it would end the process."""
    net = nn.Linear(2, 2).to("sim:1")
    x = torch.ones(3, 2, device="sim:1", requires_grad=True)
    y = net(x)

    def fail(*_):
        raise ZeroDivisionError(where)

    if where == "tensor":
        y.register_hook(fail)
    elif where == "leaf":
        x.register_hook(fail)
    elif where == "accumulated":
        x.register_post_accumulate_grad_hook(fail)
    else:
        net.register_full_backward_hook(fail)
        y = net(x)
    with pytest.raises(ZeroDivisionError, match=where) as caught:
        y.sum().backward()
    assert "fail" in [entry.name for entry in caught.traceback]
    z = torch.ones(2, device="sim:1", requires_grad=True)
    z.square().sum().backward()
    assert z.grad.tolist() == [2, 2]


def test_what_a_refused_operation_would_have_written_to(a):
    x, kept = a.requires_grad_(), torch.ones(3, 4, device="sim:1")
    bad = torch.ones(3, 4, device="sim:0")
    y = x * 2
    y.register_hook(lambda g: kept.add_(bad) * 0 + g)
    y.register_hook(lambda g: torch._foreach_add_([kept], [bad]) or g)
    y.register_hook(lambda g: torch.add(g, bad, out=kept))
    with mixes("sim:1", "sim:0"):
        y.sum().backward()
    assert torch.equal(kept.cpu(), torch.ones(3, 4))


def test_statistics_that_a_refused_operation_would_have_changed(a):
    x, mean = a.requires_grad_(), torch.zeros(4, device="sim:1")
    variance = torch.ones(4, device="sim:0")
    y = x * 2
    y.register_hook(lambda g: F.batch_norm(g, mean, variance, training=True))
    with mixes("sim:1", "sim:0"):
        y.sum().backward()
    assert not mean.any()


def test_an_error_after_the_first_does_not_hide_it(a):
    x = a.requires_grad_()
    bad = torch.ones(3, 4, device="sim:0")
    y = Backward.apply(x, lambda g: (g + bad).item())
    with mixes("sim:1", "sim:0"):
        y.sum().backward()


def test_ctrl_c_waits_for_the_end_of_backward(a):
    x = a.requires_grad_()
    y = x * 2
    y.register_hook(lambda g: signal.raise_signal(signal.SIGINT))
    # A program that a shell starts in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        y.sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((3, 4), 2.0))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_a_backward_that_fails_is_not_told_by_a_later_one(a):
    def fail(gradient):
        signal.raise_signal(signal.SIGINT)
        raise ValueError("in the hook")

    x = a.requires_grad_()
    y = x * 2
    y.register_hook(fail)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(ValueError, match="in the hook"):
        y.sum().backward()
    (x * 2).sum().backward()


INTERRUPTED_FORWARD = """
import signal
import torch
import dpkit.sim

def go_on():
    while True:
        net(x)

signal.signal(signal.SIGINT, signal.default_int_handler)
dpkit.sim.register()
net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8)))
net, x = net.to("sim:0"), torch.ones(2, 3, 4, device="sim:0")
for _ in range(60):
    print("at it", flush=True)
    try:
        go_on()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.untraced  # Ctrl-C in coverage leaves its lock locked
def test_ctrl_c_in_forward_does_not_end_the_process(forking):
    """PyTorch would end it where Ctrl-C comes while it asks the guard."""
    with start(forking, INTERRUPTED_FORWARD) as run:
        for i in range(60):
            assert run.stdout.readline() == "at it\n"
            time.sleep(0.005 + i / 6000)
            run.send_signal(signal.SIGINT)
            assert run.stdout.readline() == "interrupted\n"
    assert run.returncode == 0


def test_moving_a_module_before_its_backward():
    net = nn.Linear(3, 2).to("sim:0")
    y = net(torch.ones(1, 3, device="sim:0")).sum()
    net.to("sim:1")
    with pytest.raises(RuntimeError, match="moved since the forward pass"):
        y.backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant):
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).to("sim:1")
    x = torch.ones(5, 3, device="sim:1", requires_grad=True)
    torch.manual_seed(0)
    layer(x).sum().backward()
    plain = layer[0].weight.grad.clone()
    layer.zero_grad()
    torch.manual_seed(0)
    checkpoint(layer, x, use_reentrant=use_reentrant).sum().backward()
    assert torch.equal(layer[0].weight.grad, plain)


# ------------------------------------------------- modules and optimizers


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 9, 3),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, 0.01),
        lambda p: torch.optim.AdamW(p, 0.01),
        lambda p: torch.optim.RMSprop(p, 0.01),
    ],
)
def test_training_equals_the_cpu_to_the_bit(make):
    nets = [small_net(), small_net().to("sim:1")]
    for net, device in zip(nets, ["cpu", "sim:1"], strict=True):
        optimizer = make(net.parameters())
        # On several devices, optimizers loop over lists; so let the CPU.
        for group in optimizer.param_groups:
            group["foreach"] = True
        torch.manual_seed(1)
        for _ in range(3):
            X, y = torch.randn(6, 1, 8, 8), torch.randint(3, (6,))
            optimizer.zero_grad()
            F.cross_entropy(net(X.to(device)), y.to(device)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    states = [net.state_dict() for net in nets]
    for name, tensor in states[0].items():
        assert torch.equal(states[1][name].cpu(), tensor), name


def test_optimizers_update_many_tensors_at_a_time():
    params = [torch.ones(2, device="sim:1", requires_grad=True)]
    params[0].grad = torch.ones(2, device="sim:1")
    calls = []
    with CountCalls(calls):
        torch.optim.Adam(params).step()
    assert any("_foreach" in name for name in calls)


class CountCalls(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(layer):
    torch.manual_seed(0)
    nets = [layer(3, 4, 2, bidirectional=True) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    nets[1].to("sim:1")
    x = torch.randn(5, 2, 3)
    outs = [nets[0](x)[0], nets[1](x.to("sim:1"))[0]]
    for out in outs:
        out.square().sum().backward()
    torch.testing.assert_close(outs[1].cpu(), outs[0])
    for p, q in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad)
    packed = nn.utils.rnn.pack_padded_sequence(
        x.to("sim:1"), torch.tensor([5, 3])
    )
    out, lengths = nn.utils.rnn.pad_packed_sequence(nets[1](packed)[0])
    assert out.shape == (5, 2, 8)
    assert lengths.tolist() == [5, 3]


def test_both_lists_of_types_for_many_tensors():
    lists = (
        optimizer._foreach_supported_types,
        _foreach_utils._foreach_supported_types,
    )
    assert all(SimTensor in types for types in lists)


def test_moving_a_module_keeps_its_parameters():
    """As on CUDA: the optimizer made before and tied weights go along."""
    embedding, out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    out.weight = embedding.weight
    net = nn.Sequential(embedding, out)
    before = [id(p) for p in net.parameters()]
    for device in ("sim:1", "sim:2", "cpu"):
        net.to(device)
        assert [id(p) for p in net.parameters()] == before
        assert net[0].weight is net[1].weight
        assert isinstance(net[0].weight, nn.Parameter)
        assert str(net[0].weight.device) == device


def test_other_modules_are_left_alone():
    """Recurrent layers hold weak references, which forbid swapping."""
    for net in (nn.LSTM(2, 3), nn.LSTM(2, 3).to("sim:1")):
        net.load_state_dict(nn.LSTM(2, 3).state_dict())
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_moving_a_module_takes_its_gradients():
    net = nn.Linear(3, 2)
    net(torch.ones(1, 3)).sum().backward()
    net.to("sim:1")
    assert str(net.weight.grad.device) == "sim:1"
    assert net.weight.grad.tolist() == [[1, 1, 1]] * 2


def test_deepcopy():
    net = small_net().to("sim:1")
    other = copy.deepcopy(net)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert p.data_ptr() != q.data_ptr()
        assert p.device == q.device
        assert isinstance(q, nn.Parameter)
        assert q.requires_grad
        assert torch.equal(p, q)


def test_deepcopy_and_gradients():
    """As on the CPU: a tensor's goes along, a parameter's stays behind."""
    for device in ("cpu", "sim:1"):
        x = torch.ones(2, device=device, requires_grad=True)
        p = nn.Parameter(torch.ones(2, device=device))
        (x * p).sum().backward()
        y, q = copy.deepcopy((x, p))
        assert y.grad.tolist() == [1, 1]
        assert y.grad.data_ptr() != x.grad.data_ptr()
        assert q.grad is None
        frozen = nn.Parameter(torch.ones(2, device=device), False)
        assert not copy.deepcopy(frozen).requires_grad


def test_assigning_data():
    p = nn.Parameter(torch.zeros(2, device="sim:1"))
    p.data = p.data * 3 + 1
    assert p.tolist() == [1, 1]
    p.data = torch.arange(3.0, device="sim:2")
    assert p.tolist() == [0, 1, 2]
    assert str(p.device) == "sim:2"
    p.grad = torch.ones(3, device="sim:2")
    p.grad.data = p.grad.data / 2
    assert p.grad.tolist() == [0.5, 0.5, 0.5]
    net = nn.Linear(2, 2).to("sim:1")
    flat = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(0 * flat + 5, net.parameters())
    assert net.bias.tolist() == [5, 5]


def test_deepcopy_keeps_what_is_shared():
    base = torch.zeros(4, device="sim:1")
    pair = copy.deepcopy([base, base[:2], base])
    pair[1] += 1
    assert pair[0].tolist() == [1, 1, 0, 0]
    assert pair[2] is pair[0]
    assert base.sum() == 0
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly"):
        copy.deepcopy(base.requires_grad_() * 2)


def test_state_dicts_are_saved_and_loaded():
    net = small_net().to("sim:1")
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert str(state["0.weight"].device) == "sim:1"
    other = small_net()
    nn.init.zeros_(other[0].weight)
    other.load_state_dict(state)
    assert str(other[0].weight.device) == "cpu"
    assert torch.equal(other[0].weight, net[0].weight.cpu())
    file.seek(0)
    at_home = torch.load(file, weights_only=True, map_location="cpu")
    assert type(at_home["0.weight"]) is torch.Tensor


@pytest.mark.parametrize("source", ["cpu", "sim:0"])
@pytest.mark.parametrize(
    "where",
    ["sim:1", torch.device("sim:1"), {"cpu": "sim:1", "sim:0": "sim:1"}],
)
def test_loading_to_a_device(source, where):
    w = torch.arange(6.0, device=source)
    file = io.BytesIO()
    torch.save({"w": w, "net": nn.Linear(2, 3).to(source).state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where, weights_only=True)
    assert type(loaded["w"]) is SimTensor
    assert str(loaded["w"].device) == "sim:1"
    assert (loaded["w"] * 2).tolist() == [0, 2, 4, 6, 8, 10]
    assert str(loaded["net"]["bias"].device) == "sim:1"


def test_loading_to_a_device_keeps_views():
    w = torch.arange(6.0)
    file = io.BytesIO()
    torch.save([w, w[2:]], file)
    file.seek(0)
    whole, view = torch.load(file, map_location="sim:1", weights_only=True)
    whole += 1
    assert view.tolist() == [3, 4, 5, 6]


def test_loading_to_a_device_that_is_not_there():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.load(file, map_location="sim:8", weights_only=True)


def test_default_device():
    with torch.device("sim:1"):
        made = torch.randn(2), torch.tensor([1.0]), nn.Linear(2, 2).weight
    assert {str(t.device) for t in made} == {"sim:1"}


def test_functional_transforms():
    x = torch.arange(3.0, device="sim:1")
    gradient = torch.func.grad(lambda x: (x**3).sum())(x)
    assert gradient.tolist() == [0, 3, 12]
    assert torch.func.vmap(lambda a: a * 2)(x).tolist() == [0, 2, 4]
    each = torch.func.vmap(torch.func.grad(lambda a: a**3))(x)
    assert each.tolist() == [0, 3, 12]
    assert str(each.device) == "sim:1"


def test_pickle():
    weight = nn.Linear(2, 2, device="sim:1").weight
    frozen = nn.Parameter(torch.ones(2, device="sim:2"), False)
    leaf = torch.ones(2, device="sim:3", requires_grad=True)
    for x in (weight, frozen, leaf, leaf.detach()):
        again = pickle.loads(pickle.dumps(x))
        assert isinstance(again, nn.Parameter) == isinstance(x, nn.Parameter)
        assert again.requires_grad == x.requires_grad
        assert again.device == x.device
        assert torch.equal(again, x)


# ----------------------------------------------------- printing and reading


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([[1.5, 2.0], [3.0, 4.0]]),
        torch.tensor(3),
        torch.tensor([True, False]),
        torch.ones(2, dtype=torch.float64),
        torch.zeros(0, 3),
        torch.zeros(0, dtype=torch.int64),
        torch.ones(2, requires_grad=True),
        torch.ones(2, requires_grad=True) * 2,
        torch.arange(5000.0),
        torch.ones(2, dtype=torch.complex64),
    ],
)
def test_prints_as_torch_does(x):
    """The words of the CPU, with the device put in."""
    with torch.no_grad():
        on_sim = x.to("sim:3").requires_grad_(x.requires_grad)
    if not x.is_leaf:
        x, on_sim = x * 1, on_sim * 1
    text = " ".join(repr(on_sim).split())
    assert "device='sim:3'" in text
    assert text.replace(", device='sim:3'", "") == " ".join(repr(x).split())


def test_prints_leaves_and_parameters():
    leaf = torch.ones(2, device="sim:1", requires_grad=True)
    text = "tensor([1., 1.], device='sim:1', requires_grad=True)"
    assert repr(leaf) == text
    assert repr(nn.Parameter(torch.ones(2, device="sim:1"))) == (
        f"Parameter containing:\n{text}"
    )


def test_reading_values(a):
    assert a[0, 0].item() == 1
    assert a[0].tolist() == [1, 1, 1, 1]
    assert bool(a.sum() == 12)
    assert float(a.mean()) == 1
    assert f"{a.sum():.1f}" == "12.0"
    assert len(a) == 3


def test_views_write_through(a):
    a[0].add_(1)
    a.t()[0] = 7
    a.view(-1)[-1] = 9
    assert a.cpu().tolist() == [[7, 2, 2, 2], [7, 1, 1, 1], [7, 1, 1, 9]]
    assert a[0].data_ptr() == a.data_ptr()
    assert a.detach().data_ptr() == a.data_ptr()


def test_in_place_returns_the_same_object(a):
    assert a.add_(1) is a
    assert a.t_() is a
    assert a.shape == (4, 3)


def test_to_the_same_device_is_the_same_tensor(a):
    """The trap that replicate() avoids, as on CUDA."""
    assert a.to("sim:1") is a
    assert a.to("sim:1", copy=True).data_ptr() != a.data_ptr()


def test_type(a):
    assert type(a + 1) is SimTensor
    assert type(a.cpu()) is torch.Tensor


# --------------------------------------------- what the backing has to tell


def test_conjugation_and_negation_wait_in_the_tensor():
    """Both are marks on a view in PyTorch, carried out when they matter."""
    x = torch.tensor([1 + 2j, 3 - 1j])
    s = x.to("sim:1")
    assert s.conj().is_conj()
    assert torch.equal((s.conj() * 2).cpu(), x.conj() * 2)
    assert torch.equal(s.conj().imag.cpu(), x.conj().imag)
    s.conj().mul_(2)
    assert torch.equal(s.cpu(), 2 * x)


def test_resizing_is_seen():
    s = torch.arange(6, device="sim:1")
    assert s.resize_(2, 3) is s
    assert s.shape == (2, 3)
    out = torch.empty(0, device="sim:1")
    assert torch.mm(torch.eye(2, device="sim:1"), out=out, mat2=s * 1.0) is out
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    pieces = [torch.empty(0, device="sim:1") for _ in range(2)]
    torch.unbind_copy(out, out=pieces)
    assert pieces[1].tolist() == [3, 4, 5]


@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (3, 5, 8), (5, 8)])
@pytest.mark.parametrize("mask", [None, "boolean", "added"])
def test_attention_equals_the_cpu_to_the_bit(shape, mask):
    torch.manual_seed(0)
    operands = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    masks = {"boolean": torch.rand(5, 5) > 0.3, "added": torch.randn(5, 5)}
    results = []
    for device in ("cpu", "sim:1"):
        q, k, v = (t.detach().to(device).requires_grad_() for t in operands)
        m = masks[mask].to(device) if mask else None
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=m)
        out.square().sum().backward()
        results.append([t.cpu() for t in (out, q.grad, k.grad, v.grad)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_compiling_is_refused():
    """It would run past the clock and the memory."""
    double = torch.compile(lambda x: x * 2)
    with pytest.raises(Exception, match=r"torch\.compile does not know"):
        double(torch.ones(3, device="sim:0"))
    torch._dynamo.reset()


def test_backward_from_many_threads():
    """The clock comes out of it as it went in."""
    x = torch.ones(50, 50, device="sim:1", requires_grad=True)

    def work():
        for _ in range(20):
            (x * x).sum().backward()
        free.append(not simulation.clock.hosts.in_backward)

    free = []
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert free == 8 * [True]


def test_a_hessian():
    """Forward over reverse, which makes zeros that have no memory."""
    x = torch.arange(1.0, 4.0, device="sim:0")
    hessian = torch.func.hessian(lambda t: (t**3).sum())(x)
    assert torch.equal(hessian.cpu(), torch.diag(6 * x.cpu()))


def test_inference_mode():
    """Ordinary tensors and new ones: copies, views, in place, layers."""
    one, other = torch.device("sim:0"), torch.device("sim:1")
    x = torch.arange(6.0).view(3, 2)
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    expected = net(x[1:])
    x, there = x.to(one), copy.deepcopy(net).to(other)
    with torch.inference_mode():
        moved = x[1:].to(other)
        assert moved.device == x.to(other).device == other
        scores = there(moved)
        assert scores.device == other
        assert not scores.requires_grad
        new = torch.zeros(3, 2, device=other)
        new.view(6)[2:] += 1
        new.mul_(2)
    assert torch.equal(scores.cpu(), expected)
    assert new.cpu().tolist() == [[0, 0], [2, 2], [2, 2]]
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match="same device"),
    ):
        x + new
