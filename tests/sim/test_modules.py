"""Tests of modules: a module moves, whatever of it is alive."""

import gc

import pytest
import torch
from torch import nn

from dpkit import sim

sim.register()

MOVES = [("cpu", "sim:0"), ("sim:0", "sim:1"), ("sim:0", "cpu")]
moves = pytest.mark.parametrize(("start", "end"), MOVES)


def norm_net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def forward(net, X):
    out = net(X)
    return out[0] if isinstance(out, tuple) else out


def seeded(make, device):
    torch.manual_seed(0)
    return make().to(device).eval()


@moves
@pytest.mark.parametrize("make", [norm_net, lambda: nn.LSTM(3, 2)])
def test_a_module_moves_while_its_output_is_alive(make, start, end):
    net, X = seeded(make, start), torch.randn(5, 3)
    expected = forward(seeded(make, end), X.to(end))
    before = [id(p) for p in net.parameters()]
    alive = forward(net, X.to(start))
    shown = alive.tolist()
    assert net.to(end) is net
    tensors = [*net.parameters(), *net.buffers()]
    assert {str(t.device) for t in tensors} == {end}
    assert [id(p) for p in net.parameters()] == before
    assert alive.tolist() == shown
    assert str(alive.device) == start
    assert torch.equal(forward(net, X.to(end)), expected)


@moves
def test_backward_of_a_forward_pass_before_the_move(start, end):
    net = nn.Linear(3, 2).to(start)
    alive = net(torch.ones(1, 3, device=start)).sum()
    net.to(end)
    words = rf"has moved since the forward pass \(then: {start}, now: {end}\)"
    with pytest.raises(RuntimeError, match=words):
        alive.backward()
    net(torch.ones(1, 3, device=end)).sum().backward()
    assert net.bias.grad.tolist() == [1, 1]
    assert str(net.bias.grad.device) == end


@pytest.mark.parametrize(
    ("start", "between"),
    [("sim:0", "sim:1"), ("sim:0", "cpu"), ("cpu", "sim:0")],
)
def test_there_and_back_the_old_backward_is_right(start, between):
    net = nn.Linear(3, 2).to(start)
    alive = net(torch.ones(1, 3, device=start)).sum()
    alive.backward(retain_graph=True)
    net.to(between).to(start)
    alive.backward()
    assert net.bias.grad.tolist() == [2, 2]
    assert str(net.bias.grad.device) == start


def test_by_a_way_round_the_old_backward_is_refused():
    net = nn.Linear(3, 2).to("sim:0")
    alive = net(torch.ones(1, 3, device="sim:0")).sum()
    net.to("cpu").to("sim:1").to("sim:0")
    words = r"has moved since .* \(then: sim:0, now: sim:0\)"
    with pytest.raises(RuntimeError, match=words):
        alive.backward()


def test_a_parameter_that_has_moved_can_be_swapped():
    """PyTorch swaps none of which there is a weak reference."""
    net, other = nn.Linear(3, 2).to("sim:0"), torch.zeros(2, device="sim:0")
    torch.utils.swap_tensors(net.bias, nn.Parameter(other))
    assert net.bias.tolist() == [0, 0]


def test_what_no_graph_holds_is_freed_when_it_has_moved():
    net = nn.Linear(300, 200).to("sim:0")
    alive = net(torch.ones(1, 300, device="sim:0")).sum()
    net.to("cpu")
    del alive
    assert torch.sim.memory_allocated(0) == 0


@moves
def test_gradients_and_hooks_go_along(start, end):
    net, calls = nn.Linear(3, 2).to(start), []
    net.bias.register_hook(lambda g: calls.append(str(g.device)))
    net.bias.register_post_accumulate_grad_hook(lambda p: calls.append(p))
    alive = net(torch.ones(1, 3, device=start)).sum()
    alive.backward(retain_graph=True)
    gradient = net.bias.grad
    net.to(end)
    assert net.bias.grad is gradient
    assert str(gradient.device) == end
    calls.clear()
    net(torch.ones(1, 3, device=end)).sum().backward()
    assert gradient.tolist() == [2, 2]
    assert len(calls) == 2
    assert calls[0] == end
    assert calls[1] is net.bias
    calls.clear()  # Python finds no cycle through a hook that C++ holds


def test_training_goes_on_after_a_move():
    results = []
    for devices in (["cpu"] * 4, ["cpu", "sim:0", "sim:1", "cpu"]):
        net = seeded(norm_net, "cpu").train()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step, device in enumerate(devices):
            net.to(device)
            torch.manual_seed(step)
            optimizer.zero_grad()
            out = net(torch.randn(5, 3).to(device))
            out.square().sum().backward()
            optimizer.step()
        results.append([p.detach() for p in net.parameters()])
    for a, b in zip(*results, strict=True):
        assert type(b) is torch.Tensor
        assert torch.equal(a, b)


def test_a_move_copies_each_tensor_once():
    net = nn.Linear(30, 20)
    net(torch.ones(1, 30)).sum().backward()
    num_bytes = 4 * (30 * 20 + 20)
    gc.collect()
    before = [torch.sim.memory_allocated(i) for i in range(2)]
    with sim.trace() as timeline:
        net.to("sim:0")
    assert timeline.summary().devices["sim:0"].bytes_received == 2 * num_bytes
    assert torch.sim.memory_allocated(0) == before[0] + 2 * num_bytes
    net.to("sim:1")
    assert torch.sim.memory_allocated(0) == before[0]
    assert torch.sim.memory_allocated(1) == before[1] + 2 * num_bytes


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_moving_under_autocast(kind):
    """Autocast keeps a copy of the weights, and knows where they were."""
    net = nn.Linear(3, 2).to("cpu" if kind == "cpu" else "sim:0")
    X = torch.ones(1, 3, device=net.bias.device)
    with torch.autocast(kind, dtype=torch.bfloat16):
        alive = net(X)
        net.to("sim:1")
    torch.testing.assert_close(
        net(X.to("sim:1")), alive.to("sim:1").float(), rtol=0.02, atol=0.02
    )


def test_other_modules_move_as_ever():
    net = nn.Linear(3, 2)
    alive = net(torch.ones(1, 3)).sum()
    weight = net.weight
    assert net.double().weight is weight
    assert net.float().weight is weight
    with torch.device("meta"):
        empty = nn.Linear(3, 2)
    assert str(empty.to_empty(device="sim:1").weight.device) == "sim:1"
    alive.backward()
    assert net.bias.grad.tolist() == [1, 1]


# ------------------------------------------------------- assigning to data


@moves
def test_data_of_a_parameter_on_another_device(start, end):
    p = nn.Parameter(torch.arange(3.0, device=start))
    p.note = "kept"
    alive = p * 2
    value = p.data.to(end)
    p.data = value
    assert str(p.device) == end
    assert isinstance(p, nn.Parameter)
    assert (type(p) is nn.Parameter) == (end == "cpu")
    assert p.requires_grad
    assert p.is_leaf
    assert p.note == "kept"
    assert p.data_ptr() == value.data_ptr()
    assert repr(p).startswith("Parameter containing:\ntensor([0., 1., 2.]")
    assert str(alive.device) == start
    (p * p).sum().backward()
    assert p.grad.tolist() == [0, 2, 4]


@moves
def test_data_of_a_leaf_on_another_device(start, end):
    x = torch.ones(3, device=start, requires_grad=True)
    x.sum().backward()
    x.data = x.data.to(end)
    assert type(x) is type(torch.ones(1, device=end))
    assert str(x.grad.device) == end
    frozen = torch.ones(3, device=start)
    frozen.data = frozen.data.to(end)
    assert not frozen.requires_grad
    assert (frozen + x).tolist() == [2, 2, 2]


def test_a_gradient_of_another_shape_goes_along():
    """FSDP1 sends a whole parameter to the host, and has one of its shard."""
    p = nn.Parameter(torch.ones(2, device="sim:1"))
    p.grad = gradient = torch.tensor([3.0, 4.0], device="sim:1")
    p.data = torch.ones(5, device="sim:1")
    for device in ("cpu", "sim:1"):
        p.data = p.data.to(device)
        assert (str(p.device), p.shape) == (device, (5,))
        assert p.grad is gradient
        assert (str(gradient.device), gradient.tolist()) == (device, [3, 4])


def test_what_was_assigned_is_not_reshaped_with_the_tensor():
    value = torch.zeros(2, 3, device="sim:1")
    x = torch.ones(1, device="sim:1")
    x.data = value
    x.t_()
    assert x.shape == (3, 2)
    assert (value + 1).shape == (2, 3)


@moves
def test_data_of_a_result_stays_where_it_is(start, end):
    x = torch.ones(3, device=start, requires_grad=True)
    y = x * 2
    with pytest.raises(RuntimeError, match="assign to that of a leaf"):
        y.data = y.data.to(end)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


class Mine(nn.Parameter):
    """A parameter of a class that nothing is known of."""


def test_a_subclass_is_refused():
    p = Mine(torch.ones(2))
    words = r"takes no other \(class: Mine, device: sim:0\)"
    with pytest.raises(NotImplementedError, match=words):
        p.data = p.data.to("sim:0")
    assert type(p) is Mine
    assert p.tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match=words):
        torch.ones(2, device="sim:0").as_subclass(Mine)


def test_a_module_with_a_subclass_does_not_move_in_part():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = Mine(net[1].weight.detach())
    with pytest.raises(NotImplementedError, match="class: Mine"):
        net.to("sim:1")
    assert {str(p.device) for p in net.parameters()} == {"cpu"}
    assert net.double()[1].weight.dtype == torch.float64
    assert type(net[1].weight) is Mine
