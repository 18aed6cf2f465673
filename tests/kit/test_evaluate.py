"""Tests of dpkit.evaluate."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dpkit
from tests.networks import lenet, lenet_params


def batches(sizes):
    generator = torch.Generator().manual_seed(0)
    for size in sizes:
        X = torch.randn(size, 1, 28, 28, generator=generator)
        yield X, torch.randint(10, (size,), generator=generator)


def count_on_one(sizes, params):
    return sum(
        int((lenet(X, params).argmax(1) == y).sum()) for X, y in batches(sizes)
    )


# Several batches and one; rows that the devices do not divide, or too few.
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(64, 64, 7), (1,)])
def test_accuracy_is_the_exact_fraction(get_devices, sizes, k):
    devices, params = get_devices(k), lenet_params(seed=1)
    accuracy = dpkit.evaluate_accuracy(
        lenet, batches(sizes), devices, dpkit.replicate(params, devices)
    )
    assert accuracy == count_on_one(sizes, params) / sum(sizes)


class Digits(nn.Module):
    """Takes images; batch norm and dropout tell one mode from the other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16),
            nn.Dropout(0.5), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, X):
        return self.layers(X)


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


WRAPPERS = {
    "none": lambda net, devices: net,
    "dpkit.DataParallel": lambda net, devices: dpkit.DataParallel(
        net.to(devices[0]), devices
    ),
    "nn.DataParallel": lambda net, devices: nn.DataParallel(net),
    "DDP": lambda net, devices: nn.parallel.DistributedDataParallel(net),
    "dpkit.DDP": lambda net, devices: dpkit.DistributedDataParallel(net),
    "two": lambda net, devices: dpkit.DataParallel(
        nn.DataParallel(net).to(devices[0]), devices
    ),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("k", "sizes"), [(1, (5,)), (2, (1,)), (3, (8, 7))])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_accuracy_of_modules_and_wrappers(get_devices, wrap, k, sizes):
    torch.manual_seed(2)
    devices, net = get_devices(k), Digits()
    net.layers[4].eval()
    plain = copy.deepcopy(net).eval()
    correct = sum(
        int((plain(X).argmax(1) == y).sum()) for X, y in batches(sizes)
    )
    net, runs = wrap(net, devices), []
    net.register_forward_hook(lambda *_: runs.append("the wrapper"))
    modes = [m.training for m in net.modules()]
    before = [t.clone() for t in net.state_dict().values()]
    accuracy = dpkit.evaluate_accuracy(net, batches(sizes), devices)
    assert accuracy == correct / sum(sizes)
    assert [m.training for m in net.modules()] == modes
    after = net.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    if isinstance(getattr(net, "module", None), nn.Module):
        assert runs == []  # that would let other processes wait


def test_every_device_evaluates_a_part_of_what_is_wrapped(get_devices):
    devices, runs = get_devices(3), []
    net = dpkit.DataParallel(nn.Identity(), devices[:1])
    net.module.register_forward_hook(
        lambda module, args, output: runs.append((output.device, len(output)))
    )
    batch = torch.eye(7), torch.arange(7)
    assert dpkit.evaluate_accuracy(net, [batch], devices) == 1
    assert runs == list(zip(devices, [3, 2, 2], strict=True))


def test_what_has_a_module_is_not_always_a_wrapper(get_devices):
    class Upside(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Identity()

        def forward(self, X):
            return -self.module(X)

    batch = -torch.eye(7), torch.arange(7)
    assert dpkit.evaluate_accuracy(Upside(), [batch], get_devices(3)) == 1


@pytest.mark.parametrize("k", [2, 7])
def test_counts_and_not_a_mean_of_means(get_devices, k):
    """Two of three and none of two right: 2/5, and not 1/3; on 7, of one."""
    X = torch.eye(5)
    y = torch.tensor([0, 1, 0, 0, 0])
    accuracy = dpkit.evaluate_accuracy(nn.Identity(), [(X, y)], get_devices(k))
    assert accuracy == 2 / 5


def test_every_device_works(get_devices):
    devices = get_devices(3)
    seen = []

    def net(X, params):
        seen.append((params[0].device, len(X)))
        return X

    params = dpkit.replicate([torch.zeros(1)], devices)
    dpkit.evaluate_accuracy(
        net, [(torch.eye(7), torch.arange(7))], devices, params
    )
    assert seen == list(zip(devices, [3, 2, 2], strict=True))


def test_module_is_evaluated_and_left_as_it_was(get_devices):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    net.train()
    net[1].eval()
    before = [t.clone() for t in net.state_dict().values()]
    batch = torch.randn(9, 4), torch.arange(9) % 4
    devices = get_devices(2)
    first = dpkit.evaluate_accuracy(net, [batch], devices)
    assert all(
        dpkit.evaluate_accuracy(net, [batch], devices) == first
        for _ in range(5)
    )
    assert [m.training for m in net] == [True, False, True]
    after = net.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_no_gradients(get_devices):
    devices = get_devices(1)
    params = dpkit.replicate([torch.eye(4)], devices)

    def net(X, weights):  # any name will do
        assert not torch.is_grad_enabled()
        return X @ weights[0]

    batch = torch.eye(4), torch.arange(4)
    assert dpkit.evaluate_accuracy(net, [batch], devices, params) == 1
    assert torch.is_grad_enabled()


def test_no_examples(get_devices):
    with pytest.raises(ValueError, match=r"\(examples: 0\)"):
        dpkit.evaluate_accuracy(nn.Identity(), [], get_devices(2))


def test_shapes_that_do_not_fit(get_devices):
    devices = get_devices(2)
    for scores, y in (
        (torch.zeros(4, 3), torch.zeros(4, 1)),
        (torch.zeros(4), torch.zeros(4)),
        (torch.zeros(4, 3, 2), torch.zeros(4)),
    ):
        with pytest.raises(ValueError, match=r"\(rows, classes\) and \(rows"):
            dpkit.evaluate_accuracy(nn.Identity(), [(scores, y)], devices)


def test_parameters_of_a_module(get_devices):
    with pytest.raises(ValueError, match="a module brings its own"):
        dpkit.evaluate_accuracy(nn.Identity(), [], get_devices(1), [[]])


def test_lists_of_parameters(get_devices):
    with pytest.raises(ValueError, match="lists: 1, devices: 2"):
        dpkit.evaluate_accuracy(lenet, [], get_devices(2), [lenet_params()])


def test_a_pipeline_is_evaluated_where_it_is():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Dropout(0.9), torch.nn.Linear(6, 3)
    )
    net[2].eval()
    X, y = torch.randn(11, 4), torch.arange(11) % 3
    batches = [(X[:6], y[:6]), (X[6:], y[6:])]
    devices = dpkit.devices(2, "sim")
    expected = dpkit.evaluate_accuracy(net, batches, devices)
    stages = dpkit.split_layers(net, 2)
    pipeline = dpkit.Pipeline(stages, devices)
    assert dpkit.evaluate_accuracy(pipeline, batches, devices) == expected
    modes = [m.training for stage in pipeline.stages for m in stage]
    assert modes == [True, True, False]
    found = {p.device for p in pipeline.parameters()}
    assert found == set(devices)


SCORES = torch.eye(4, 3)
NAN = torch.full((4, 3), float("nan"))
ONE_NAN = torch.cat([SCORES[:3], NAN[3:]])
ANSWERS = [
    (SCORES, torch.tensor([0, 1, 2, 9]), r"labels: 1, examples: 4"),
    (SCORES, torch.tensor([0, 1, 3, 3]), r"labels: 2, examples: 4"),
    (SCORES, torch.tensor([-100, 1, 2, 0]), r"labels: 1, examples: 4"),
    (SCORES, torch.tensor([0.0, 1.0, 2.0, 0.0]), r"torch.float32\); y.long"),
    (NAN, torch.tensor([0, 1, 2, 0]), r"with NaN: 4, examples: 4"),
    (ONE_NAN, torch.tensor([0, 1, 2, 0]), r"with NaN: 1, examples: 4"),
]


@pytest.mark.parametrize("where", ["cpu", "on the device"])
@pytest.mark.parametrize(("scores", "y", "told"), ANSWERS)
def test_answers_of_which_none_is_right(get_devices, scores, y, told, where):
    devices = get_devices(3)
    if where != "cpu":
        y = y.to(devices[0])
    batches = [(scores, y)]
    with pytest.raises(ValueError, match=told):
        dpkit.evaluate_accuracy(nn.Identity(), batches, devices)


@pytest.mark.parametrize("net", [None, 3])
def test_what_is_no_network(get_devices, net):
    with pytest.raises(TypeError, match=r"not a function \(net: "):
        dpkit.evaluate_accuracy(net, [], get_devices(1))
