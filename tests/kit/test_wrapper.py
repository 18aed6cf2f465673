"""Tests of dpkit.data_parallel.wrapper.

The oracle is plain PyTorch on the CPU: the module itself, the mean loss,
backward, and torch.optim.SGD.
"""

import copy
import io
import pickle
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.data_parallel import wrapper as wrapper_module
from tests.networks import resnet18

NUM_STEPS = 2


class Pairs(nn.Module):
    """Takes nested inputs, and gives nested outputs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.other = nn.Linear(2, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 10)

    def forward(self, pair, power, *, extra):
        x, scale = pair
        h = self.first(x) * scale + self.other(extra["z"][0]) ** power
        scores = self.last(torch.tanh(self.norm(h)))
        return {"scores": scores, "more": (h.norm(dim=1), "word")}


def images(net, X):
    return net(X.reshape(-1, 1, 8, 8))


def pairs(net, X):
    pair = X[:, :3], torch.tensor(0.5, dtype=X.dtype)
    outputs = net(pair, 2, extra={"z": [X[:, 3:5]]})
    assert outputs["more"][0].shape == (len(X),)
    assert outputs["more"][1] == "word"
    return outputs["scores"]


def make(name):
    torch.manual_seed(1)
    if name == "pairs":
        return Pairs().double(), pairs
    net = resnet18(width=4).double()
    images(net, torch.randn(32, 64, dtype=torch.double))  # some statistics
    return net.eval(), images


def batches(batch_size):
    generator = torch.Generator().manual_seed(batch_size)
    for _ in range(NUM_STEPS):
        X = torch.randn(
            batch_size, 64, dtype=torch.double, generator=generator
        )
        yield X, torch.randint(10, (batch_size,), generator=generator)


def train(net, call, batch_size):
    """Take some steps; return parameters, buffers and momentum."""
    device = next(net.parameters()).device
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for X, y in batches(batch_size):
        optimizer.zero_grad()
        F.cross_entropy(call(net, X), y.to(device)).backward()
        optimizer.step()
    momentum = [
        optimizer.state[p]["momentum_buffer"] for p in net.parameters()
    ]
    return [*net.state_dict().values(), *momentum]


@cache
def oracle(name, batch_size):
    return train(*make(name), batch_size)


def largest_difference(found, expected):
    return max(
        float((a.detach().cpu() - b.detach()).abs().max())
        for a, b in zip(found, expected, strict=True)
    )


def note_runs(net):
    """Return a list of the device and rows of each run of a module."""
    runs = []
    net.register_forward_hook(
        lambda module, args, output: runs.append(
            (args[0].device, len(args[0]))
        )
    )
    return runs


def rows_of_each(num_rows, k):
    rows = [len(x) for x in torch.arange(num_rows).tensor_split(k)]
    return [count for count in rows if count]


@pytest.mark.parametrize(
    ("name", "k", "batch_size"),
    [
        *(("pairs", k, rows) for k in range(1, 6) for rows in (1, 7)),
        *(("images", k, 13) for k in (2, 3)),
    ],
)
def test_k_devices_take_the_steps_of_one(get_devices, name, k, batch_size):
    devices, (net, call) = get_devices(k), make(name)
    runs = note_runs(net.conv1 if name == "images" else net.first)
    start = copy.deepcopy(list(net.parameters()))
    net = dpkit.DataParallel(net, devices).to(devices[0])
    found = train(net, call, batch_size)
    rows = rows_of_each(batch_size, k)
    assert len(rows) == min(k, batch_size)
    assert runs == list(zip(devices, rows)) * NUM_STEPS
    assert all(t.device == devices[0] for t in found)
    assert largest_difference(net.parameters(), start) > 1e-3  # it did learn
    assert largest_difference(found, oracle(name, batch_size)) < 1e-10


# Faults planted, each seen by the same comparison.


def step_is_wrong(name="pairs", k=3, kind="sim"):
    devices, (net, call) = dpkit.devices(k, kind), make(name)
    net = dpkit.DataParallel(net, devices).to(devices[0])
    found = train(net, call, 7)
    return largest_difference(found, oracle(name, 7)) > 1e-6


@pytest.mark.parametrize("kind", ["sim", "cpu"])
@pytest.mark.parametrize("name", ["images", "pairs"])
def test_nothing_planted(name, kind):
    assert not step_is_wrong(name, kind=kind)


def test_planted_gradient_of_replica_0_alone(monkeypatch):
    def detached(module, devices):
        copies = [copy.deepcopy(module).to(d) for d in devices[1:]]
        return [module, *copies]

    monkeypatch.setattr(wrapper_module, "replicate_module", detached)
    assert step_is_wrong()


def test_planted_order_of_gather(monkeypatch):
    gather_nested = wrapper_module.gather_nested
    monkeypatch.setattr(
        wrapper_module,
        "gather_nested",
        lambda parts, device: gather_nested(parts[::-1], device),
    )
    assert step_is_wrong()


# What goes in.


class Doubled(nn.Module):
    def forward(self, *args, **kwargs):
        self.found = args, kwargs
        (x,) = [*args, *kwargs.values()][:1] or [torch.ones(1)]
        return x * 2


@pytest.mark.parametrize(
    ("num_rows", "expected"),
    [(0, [0]), (1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (7, [3, 2, 2])],
)
def test_as_many_replicas_as_there_are_rows(get_devices, num_rows, expected):
    devices = get_devices(3)
    net = dpkit.DataParallel(Doubled(), devices)
    runs = note_runs(net.module)
    y = net(torch.arange(num_rows * 2).reshape(num_rows, 2))
    assert runs == list(zip(devices, expected))
    assert y.device == devices[0]
    assert y.tolist() == [[4 * r, 4 * r + 2] for r in range(num_rows)]


def test_keywords_are_split_too(get_devices):
    devices = get_devices(3)
    net = dpkit.DataParallel(Doubled(), devices)
    y = net(x=torch.arange(7), options={"mask": torch.arange(7)})
    assert y.tolist() == list(range(0, 14, 2))
    args, kwargs = net.module.found  # of the replica on the first device
    assert args == ()
    assert kwargs["options"]["mask"].tolist() == [0, 1, 2]


def test_no_tensor_runs_once(get_devices):
    devices = get_devices(3)
    net = dpkit.DataParallel(Doubled(), devices)
    assert net("ab") == "abab"
    assert net.module.found == (("ab",), {})
    assert net().tolist() == [2.0]


def test_rows_that_differ(get_devices):
    net = dpkit.DataParallel(Doubled(), get_devices(2))
    with pytest.raises(
        ValueError, match=r"\(args\[0\]: 7, kwargs\['m'\]: 5\)"
    ):
        net(torch.zeros(7), m=torch.zeros(5))


def test_a_loss_within_gives_one_number_of_each(get_devices):
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean()

    devices = get_devices(3)
    x = torch.arange(7.0)
    losses = dpkit.DataParallel(Mean(), devices)(x)
    assert losses.device == devices[0]
    assert losses.tolist() == [1.0, 3.5, 5.5]
    assert dpkit.DataParallel(Mean(), devices)(x[:2]).shape == (2,)
    assert dpkit.DataParallel(Mean(), devices[:1])(x).tolist() == [3.0]


def test_outputs_that_differ(get_devices):
    class Lengths(nn.Module):
        def forward(self, x):
            return {"n": len(x)}

    net = dpkit.DataParallel(Lengths(), get_devices(2))
    assert net(torch.zeros(4)) == {"n": 2}
    with pytest.raises(ValueError, match=r"\(outputs: {'n': 3}, {'n': 2}\)"):
        net(torch.zeros(5))


def test_gradients_flow_to_inputs(get_devices):
    devices = get_devices(2)
    x, w = torch.ones(5, 2, requires_grad=True), torch.tensor(2.0)
    w.requires_grad_()
    net = dpkit.DataParallel(Doubled(), devices)
    net(w * x).sum().backward()
    assert torch.equal(x.grad, torch.full((5, 2), 4.0))
    assert float(w.grad) == 20


# Where things lie.


def test_no_devices():
    with pytest.raises(ValueError, match=r"\(devices: 0\)"):
        dpkit.DataParallel(nn.Identity(), [])


def test_a_module_that_lies_elsewhere():
    devices = dpkit.devices(2, "sim")
    layer = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    net = dpkit.DataParallel(layer, devices)
    with pytest.raises(
        ValueError, match=r"\(0.weight: cpu, devices\[0\]: sim:0"
    ):
        net(torch.zeros(5, 3))
    net = net.to(devices[1])
    with pytest.raises(
        ValueError, match=r"\(0.weight: sim:1, devices\[0\]: si"
    ):
        net(torch.zeros(5, 3))
    net = net.to(devices[0])
    layer[1].running_var = layer[1].running_var.cpu()
    with pytest.raises(ValueError, match=r"\(1.running_var: cpu"):
        net(torch.zeros(5, 3))


def test_devices_by_name():
    dpkit.devices(2, "sim")
    net = dpkit.DataParallel(nn.Linear(3, 2), ["sim", "sim:1"])
    assert net.to("sim").devices == dpkit.devices(2, "sim")
    assert net(torch.zeros(5, 3)).shape == (5, 2)


def test_a_device_twice():
    one, two = dpkit.devices(2, "sim")
    X = torch.randn(7, 3)
    plain = nn.Linear(3, 2)
    net = dpkit.DataParallel(copy.deepcopy(plain), [one, two, one]).to(one)
    plain(X).square().sum().backward()
    net(X).square().sum().backward()
    for p, q in zip(plain.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad)


def test_a_device_without_a_number_is_the_replicas_own():
    class Fresh(nn.Module):
        def forward(self, x):
            return x + torch.ones(len(x), device="sim")

    devices = dpkit.devices(3, "sim")
    y = dpkit.DataParallel(Fresh(), devices)(torch.zeros(7))
    assert y.tolist() == [1.0] * 7


def test_parameters_in_a_plain_list_are_not_copied():
    """They are refused where devices differ, and not silently wrong."""

    class Listed(nn.Linear):
        def forward(self, x):
            return F.linear(x, *self.listed)

    devices = dpkit.devices(2, "sim")
    layer = Listed(3, 2).to(devices[0])
    layer.listed = [layer.weight, layer.bias]
    with pytest.raises(RuntimeError, match="same device"):
        dpkit.DataParallel(layer, devices)(torch.zeros(5, 3))


# The state of the module.


def test_parameters_are_the_modules_own(get_devices):
    devices = get_devices(2)
    layer = nn.Linear(3, 2).to(devices[0])
    net = dpkit.DataParallel(layer, devices)
    assert [id(p) for p in net.parameters()] == [
        id(layer.weight),
        id(layer.bias),
    ]
    assert list(net.state_dict()) == ["weight", "bias"]
    before = layer.weight.detach().clone()
    net(torch.ones(5, 3)).sum().backward()
    assert layer.weight.grad.device == devices[0]
    torch.optim.SGD(net.parameters(), 0.1).step()
    assert torch.allclose(layer.weight, before - 0.5)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.body = inner


@pytest.mark.parametrize("outer", [nn.Identity, Outer])
def test_state_dicts_are_as_without_the_wrapper(outer):
    def inner():
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    def wrapped():
        return dpkit.DataParallel(inner(), ["cpu", "cpu"])

    def held(module):
        return module if outer is nn.Identity else Outer(module)

    plain, net, fresh = held(inner()), held(wrapped()), held(inner())
    before = plain.state_dict()
    assert list(net.state_dict()) == list(before)
    assert net.state_dict()._metadata == before._metadata
    assert (
        str(net.load_state_dict(before)) == "<All keys matched successfully>"
    )
    fresh.load_state_dict(net.state_dict())
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, before[name])
    (name,) = [name for name in before if name.endswith("0.bias")]
    with pytest.raises(RuntimeError, match=r"Missing .*0\.bias"):
        net.load_state_dict({n: t for n, t in before.items() if n != name})
    odd = name.replace("bias", "odd")
    with pytest.raises(RuntimeError, match=r"Unexpected .*0\.odd"):
        net.load_state_dict({**before, odd: torch.zeros(1)})


def test_copies_and_files(get_devices):
    devices = get_devices(2)
    X = torch.randn(5, 3)
    net = dpkit.DataParallel(nn.Linear(3, 2), devices).to(devices[0])
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        torch.load(file, weights_only=False),
    ):
        assert other.devices == devices
        assert torch.equal(other(X), net(X))
        other(X).sum().backward()
        assert net.module.weight.grad is None
        Outer(other).load_state_dict(Outer(net).state_dict())


def test_batch_norm_keeps_what_replica_0_saw(get_devices):
    devices = get_devices(3)
    X = torch.randn(7, 4)
    plain = nn.BatchNorm1d(4)
    net = dpkit.DataParallel(nn.BatchNorm1d(4), devices).to(devices[0])
    found = net(X)
    shards = [copy.deepcopy(plain)(shard) for shard in X.tensor_split(3)]
    torch.testing.assert_close(found.cpu(), torch.cat(shards))
    plain(X[:3])  # the shard of replica 0
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(net.module.get_buffer(name).cpu(), buffer)


def test_what_a_forward_sets(get_devices):
    """On the first device it stays; what others set is lost."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            self.last = x * 2
            self.seen += len(x)
            self.size = len(x)
            return self.last[: self.size]

    devices = get_devices(3)
    net = dpkit.DataParallel(Counting(), devices).to(devices[0])
    for _ in range(2):
        assert net(torch.arange(7)).tolist() == list(range(0, 14, 2))
    assert (net.module.calls, net.module.size) == (2, 3)
    assert net.module.last.device == devices[0]
    assert net.module.last.tolist() == [0, 2, 4]
    assert float(net.module.seen) == 6


# What runs.


def test_hooks_run_on_each_replica(get_devices):
    devices = get_devices(3)
    inner = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net = dpkit.DataParallel(inner, devices).to(devices[0])
    seen, outer, backward = note_runs(inner[2]), note_runs(net), []
    inner[0].register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    inner[0].register_full_backward_hook(
        lambda m, grads, outputs: backward.append(len(outputs[0]))
    )
    net(torch.randn(7, 3, requires_grad=True)).sum().backward()
    assert seen == list(zip(devices, [3, 2, 2]))
    assert outer == [(torch.device("cpu"), 7)]
    assert sorted(backward) == [2, 2, 3]
    assert float(inner[0].weight.grad.abs().max()) == 0


@pytest.mark.parametrize("is_training", [True, False])
def test_modes_reach_the_replicas(get_devices, is_training):
    modes = []
    inner = nn.Linear(3, 2)
    inner.register_forward_hook(lambda m, *_: modes.append(m.training))
    devices = get_devices(3)
    net = dpkit.DataParallel(inner, devices).to(devices[0])
    net.train(is_training)(torch.zeros(7, 3))
    assert modes == [is_training] * 3


def test_a_module_finds_its_parameters(get_devices):
    """Code that asks for the device of a parameter gets the replica's."""

    class Asking(nn.Linear):
        def forward(self, x):
            devices = {p.device for p in self.parameters()}
            assert devices == {x.device}
            assert len(self.state_dict()) == 2
            return super().forward(x)

    devices = get_devices(3)
    net = dpkit.DataParallel(Asking(3, 2), devices).to(devices[0])
    assert net(torch.zeros(7, 3)).shape == (7, 2)


def frozen():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    net[0].requires_grad_(False)
    return net


def tied():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    return net


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)

    def forward(self, x):
        outputs, (h, c) = self.lstm(x[:, None].expand(-1, 5, -1))
        return outputs, h.transpose(0, 1), c.transpose(0, 1)


class Listing(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrices = nn.ParameterList([torch.eye(3), torch.ones(3, 2)])
        self.named = nn.ParameterDict({"bias": torch.zeros(2)})

    def forward(self, x):
        for matrix in self.matrices:
            x = x @ matrix
        return x + self.named["bias"]


def parametrized():
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))


class Recomputing(nn.Module):
    """Runs its layers again in backward, when forward is long over."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(checkpoint(self.layers, x, use_reentrant=False))


MODULES = [frozen, tied, Recurrent, Listing, parametrized, Recomputing]


def total(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum(x.square().sum() for x in outputs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make_module", MODULES)
def test_modules_of_many_kinds(get_devices, make_module):
    devices = get_devices(3)
    torch.manual_seed(0)
    plain = make_module().double()
    net = dpkit.DataParallel(copy.deepcopy(plain), devices).to(devices[0])
    for _ in range(2):  # the second finds what the first may have left
        X = torch.randn(7, 3, dtype=torch.double)
        expected, found = total(plain(X)), total(net(X))
        torch.testing.assert_close(found.cpu(), expected)
        expected.backward()
        found.backward()
    for p, q in zip(plain.parameters(), net.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(q.grad.cpu(), p.grad)


def test_without_gradients(get_devices):
    devices = get_devices(2)
    net = dpkit.DataParallel(nn.Linear(3, 2), devices).to(devices[0])
    modes = []
    net.module.register_forward_hook(
        lambda *_: modes.append(torch.is_grad_enabled())
    )
    with torch.no_grad():
        assert not net(torch.zeros(5, 3)).requires_grad
    assert modes == [False, False]
    assert net(torch.zeros(5, 3)).requires_grad


def test_autocast_reaches_the_replicas(get_devices):
    devices = get_devices(3)
    net = dpkit.DataParallel(nn.Linear(3, 2), devices).to(devices[0])
    dtypes = []
    net.module.register_forward_hook(
        lambda m, args, output: dtypes.append(output.dtype)
    )
    with torch.autocast(devices[0].type, dtype=torch.bfloat16):
        y = net(torch.randn(7, 3))
    y.float().sum().backward()
    assert dtypes == [torch.bfloat16] * 3
    assert y.dtype == torch.bfloat16
    assert net.module.weight.grad.dtype == torch.float32


def test_dropout_draws_for_each_row(get_devices):
    devices = get_devices(3)
    net = dpkit.DataParallel(nn.Dropout(0.5), devices)
    torch.manual_seed(0)
    y = net(torch.ones(6, 500)).cpu()
    assert set(y.unique().tolist()) == {0.0, 2.0}
    kept = (y > 0).float().mean(dim=1)
    assert bool(((kept > 0.35) & (kept < 0.65)).all())
    assert net.eval()(torch.ones(6, 5)).unique().tolist() == [1.0]


# What it costs on simulated devices.


@pytest.mark.parametrize("hosts", ["one", "per_device"])
def test_bytes_and_time_of_a_step(hosts):
    with dpkit.sim.machine(num_devices=3, hosts=hosts):
        devices = dpkit.devices(3, "sim")
        net = dpkit.DataParallel(nn.Linear(64, 5), devices).to(devices[0])
        X = torch.randn(30, 64, device=devices[0])
        with dpkit.sim.trace() as timeline:
            net(X).sum().backward()
            dpkit.synchronize(devices)
        copies = [span for span in timeline.spans if span.kind == "copy"]
        sent, received = (
            {
                name: sum(s.num_bytes for s in copies
                          if s.device == name and s.name.startswith(verb))
                for name in map(str, devices)
            }
            for verb in ("copy to", "copy from")
        )  # fmt: skip
        weights, rows, outputs = 4 * 65 * 5, 4 * 10 * 64, 4 * 10 * 5
        # Parameters, rows and outputs' gradients one way, the other way
        # gradients and outputs.
        there, back = weights + rows + outputs, weights + outputs
        assert sent == {"sim:0": 2 * there, "sim:1": back, "sim:2": back}
        assert received == {"sim:0": 2 * back, "sim:1": there, "sim:2": there}
        end = max(span.end for span in timeline.spans)
        assert end <= dpkit.sim.now(devices[0])
        assert net.module.weight.grad.device == devices[0]


# On GPUs.


def images_on_gpus(devices, wrap):
    net, call = make("images")
    net = wrap(net.to(devices[0]), devices)
    return train(net, call, 257)


@pytest.mark.cuda
def test_numbers_of_torchs_wrapper(need_gpus):
    """The same up to rounding."""
    need_gpus(2)
    devices = dpkit.devices(2, "cuda")

    def torchs(net, devices):
        return nn.DataParallel(net, [d.index for d in devices])

    ours = images_on_gpus(devices, dpkit.DataParallel)
    theirs = images_on_gpus(devices, torchs)
    assert largest_difference(ours, [t.cpu() for t in theirs]) < 1e-10
    torch.manual_seed(0)
    pair = torch.randn(7, 3), torch.tensor([2.0])
    found = dpkit.DataParallel(Doubled(), devices)(pair[0])
    expected = nn.DataParallel(Doubled(), [0, 1])(pair[0].to(devices[0]))
    assert torch.equal(found, expected)


@pytest.mark.cuda
def test_one_gpu_several_times(need_gpus):
    need_gpus(1)
    devices = [torch.device("cuda", 0)] * 3
    found = images_on_gpus(devices, dpkit.DataParallel)
    assert largest_difference(found, oracle("images", 257)) < 1e-10
