"""What cannot be is refused at the door, with the value."""

import re
from math import inf, nan

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit import layer_partition as lp
from dpkit import units
from dpkit.batch_norm import SyncBatchNorm
from dpkit.buckets import Buckets, assign
from dpkit.data_parallel import BucketedDataParallel
from dpkit.data_parallel.step import sgd
from dpkit.experts import (
    balance_loss,
    expert_parallel,
    own_experts,
    route_tokens,
)
from dpkit.network_partition import layer_seconds
from dpkit.plans.algorithms import allreduce_plan
from dpkit.processes import Workers
from dpkit.sequence import (
    join_sequence,
    own_part,
    positions,
    ring_attention,
    ulysses_attention,
)
from dpkit.sharding import FlatBlock, Zero2
from dpkit.sim.devices.configuration import DEFAULTS, simulation
from dpkit.sim.hardware import HOSTS, LINKS

X, Y = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
EACH = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture(autouse=True)
def _default_machine():
    yield
    dpkit.sim.configure()


def net(X, params):
    return X @ params[0]


def attention():
    return nn.MultiheadAttention(8, 2, batch_first=True)


def mlp(devices):
    return lp.ParallelMLP(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), devices)


TAKE_DEVICES = {
    "scatter": lambda d: dpkit.scatter(X, d),
    "split_batch": lambda d: dpkit.split_batch(X, Y, d),
    "replicate": lambda d: dpkit.replicate([X], d),
    "synchronize": dpkit.synchronize,
    "Timer": dpkit.Timer,
    "train_batch": lambda d: dpkit.train_batch(
        net, EACH, X, Y, [[torch.ones(3, 2, requires_grad=True)]], d, 0.1
    ),
    "train": lambda d: dpkit.train(
        net, EACH, [torch.ones(3, 2)], [(X, Y)], [(X, Y)], d, 0.1, 1
    ),
    "evaluate_accuracy": lambda d: dpkit.evaluate_accuracy(
        nn.Linear(3, 2), [(X, Y)], d
    ),
    "DataParallel": lambda d: dpkit.DataParallel(nn.Linear(3, 2), d),
    "BucketedDataParallel": lambda d: BucketedDataParallel(
        nn.Linear(3, 2), d
    ),
    "Pipeline": lambda d: dpkit.Pipeline([nn.Linear(3, 2)], d),
    "ColumnParallelLinear": lambda d: dpkit.ColumnParallelLinear(
        nn.Linear(9, 9), d
    ),
    "RowParallelLinear": lambda d: dpkit.RowParallelLinear(
        nn.Linear(9, 9), d
    ),
    "ChannelParallelConv2d": lambda d: dpkit.ChannelParallelConv2d(
        nn.Conv2d(9, 9, 3), d
    ),
    "VocabParallelEmbedding": lambda d: lp.VocabParallelEmbedding(
        nn.Embedding(9, 2), d
    ),
    "HeadParallelAttention": lambda d: lp.HeadParallelAttention(
        attention(), d
    ),
    "ParallelMLP": mlp,
    "Replicated": lambda d: lp.Replicated(nn.ReLU(), d),
    "LayerParallel": lambda d: lp.LayerParallel(nn.ReLU(), d),
}  # fmt: skip


@pytest.mark.parametrize("given", ["sim:0", torch.device("cpu"), 2, None])
@pytest.mark.parametrize("act", TAKE_DEVICES.values(), ids=TAKE_DEVICES)
def test_what_is_no_list_of_devices(act, given):
    with pytest.raises(TypeError) as caught:
        act(given)
    told = f"not a list of devices (devices: {given!r})"
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("act", TAKE_DEVICES.values(), ids=TAKE_DEVICES)
def test_a_list_and_a_tuple_of_devices_will_do(act):
    for kind in (list, tuple):
        act(kind(dpkit.devices(1, "cpu")))


@pytest.mark.filterwarnings("ignore:.*(CSR|nested|quantized) tensor")
@pytest.mark.parametrize(
    "kind", ["sparse_coo", "sparse_csr", "nested", "quantized"]
)
def test_a_collective_refuses_what_is_not_dense(kind):
    def make():
        x = torch.eye(3)
        if kind == "nested":
            return torch.nested.nested_tensor([x])
        if kind == "quantized":
            return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
        return x.to_sparse(layout=getattr(torch, kind))

    with pytest.raises(NotImplementedError, match=rf"of tensor: {kind}\)"):
        dpkit.allreduce([make(), make()])


def test_a_generator_of_devices_will_do_where_they_are_gone_through_once():
    devices = iter(dpkit.devices(2, "cpu"))
    batch = torch.eye(2), torch.tensor([0, 1])
    assert dpkit.evaluate_accuracy(nn.Identity(), [batch], devices) == 1.0
    for name in ("synchronize", "Timer", "Pipeline", "Replicated"):
        TAKE_DEVICES[name](iter(dpkit.devices(1, "cpu")))


TAKE_COUNTS = {
    "count": lambda n: dpkit.devices(n, "cpu"),
    "num_devices": lambda n: dpkit.sim.configure(num_devices=n),
    "ranks_per_node": lambda n: dpkit.sim.configure(ranks_per_node=n),
    "devices_per_switch": lambda n: dpkit.sim.configure(devices_per_switch=n),
    "num_epochs": lambda n: dpkit.train(
        net, EACH, [torch.ones(3, 2)], [(X, Y)], [(X, Y)],
        dpkit.devices(1, "cpu"), 0.1, n,
    ),
    "num_stages": lambda n: dpkit.split_layers(
        nn.Sequential(nn.ReLU(), nn.ReLU()), n
    ),
    "num_micro_batches": lambda n: dpkit.Pipeline(
        [nn.ReLU(), nn.ReLU()], dpkit.devices(2, "cpu"), "gpipe", n
    ),
    "world_size": Workers,
}  # fmt: skip


@pytest.mark.parametrize("given", [2.0, 1.5, nan, "2"])
@pytest.mark.parametrize("name", TAKE_COUNTS)
def test_what_is_no_count(name, given):
    with pytest.raises(TypeError) as caught:
        TAKE_COUNTS[name](given)
    assert str(caught.value) == f"not a whole number ({name}: {given!r})"
    assert simulation.settings == DEFAULTS


def test_what_is_no_count_elsewhere():
    tensors = [torch.ones(4) for _ in range(4)]
    with pytest.raises(TypeError, match=r"\(ranks_per_node: 2.0\)"):
        dpkit.allreduce(tensors, "sum", "hierarchical", ranks_per_node=2.0)
    for act in (dpkit.broadcast, dpkit.reduce):
        with pytest.raises(TypeError, match=r"not a whole number \(root: 1."):
            act(tensors, root=1.0)
    layers, devices = nn.Sequential(nn.ReLU(), nn.ReLU()), ["cpu", "cpu"]
    with pytest.raises(TypeError, match=r"not a whole number \(sizes: 1.0"):
        dpkit.split_layers(layers, 2, sizes=[1.0, 1])
    with pytest.raises(TypeError, match=r"not a whole number \(sizes: 2.0"):
        dpkit.RowParallelLinear(nn.Linear(4, 3), devices, [2.0, 2])


@pytest.mark.parametrize("lr", [nan, inf, -inf])
def test_what_is_no_learning_rate(lr):
    devices = dpkit.devices(2, "sim")
    replicas = dpkit.replicate([torch.ones(3, 2)], devices)
    told = rf"the learning rate is not a finite number \(lr: {lr}\)"
    with pytest.raises(ValueError, match=told):
        dpkit.train_batch(net, EACH, X, Y, replicas, devices, lr)
    with pytest.raises(ValueError, match=told):
        dpkit.train(net, EACH, [X[:3]], [(X, Y)], [(X, Y)], devices, lr, 1)
    for (p,) in replicas:
        assert p.grad is None
        assert torch.equal(p.cpu(), torch.ones(3, 2))


def test_one_tensor_is_no_list_of_parameters():
    """Its rows would be the parameters."""
    W, devices = torch.ones(3, 2), dpkit.devices(2, "sim")
    told = r"a tensor where a list of tensors belongs \(shape: \(3, 2\)\)"
    with pytest.raises(TypeError, match=told):
        dpkit.replicate(W, devices)
    with pytest.raises(TypeError, match=told):
        dpkit.train(net, EACH, W, [(X, Y)], [(X, Y)], devices, 0.1, 1)
    with pytest.raises(TypeError, match=r"not a tensor \(type: ReLU\)"):
        dpkit.replicate(nn.Sequential(nn.ReLU()), devices)


@pytest.mark.parametrize("name", ["accelerator", "link", "host", "network"])
def test_what_is_no_preset(name):
    told = rf"neither a name nor a preset \({name}: "
    other = LINKS["nvlink2"] if name == "host" else HOSTS["eager"]
    for given in (3, None, other):
        with pytest.raises(TypeError, match=told + str(given)[:4]):
            dpkit.sim.configure(**{name: given})
    assert simulation.settings == DEFAULTS


@pytest.mark.parametrize("factor", [inf, nan, 0.0, -1.0])
def test_what_is_no_factor_of_time(factor):
    with pytest.raises(ValueError, match=rf"\(slow: \{{0: {factor}\}}\)"):
        dpkit.sim.configure(slow={0: factor})
    assert simulation.settings == DEFAULTS


@pytest.mark.parametrize("memory_bytes", [inf, nan, 0])
def test_what_is_no_size_of_memory(memory_bytes):
    with pytest.raises(ValueError, match=rf"memory_bytes: {memory_bytes}\)"):
        dpkit.sim.configure(memory_bytes=memory_bytes)
    assert simulation.settings == DEFAULTS


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "meta"])
def test_what_is_no_current_device(device):
    dpkit.devices(1, "sim")
    with pytest.raises(ValueError, match=rf"\(device: {device}\)"):
        torch.sim.set_device(device)
    with (
        pytest.raises(ValueError, match="not a simulated device"),
        torch.sim.device(device),
    ):
        pass
    assert torch.zeros(1, device="sim").device.index == 0


def test_devices_without_a_number_meet():
    """Each host has a clock of its own, and that device's is known."""
    with dpkit.sim.machine(hosts="per_device"):
        plain, one = torch.device("sim"), dpkit.devices(2, "sim")[1]
        x = torch.ones(1000, 1000, device=one)
        x @ x
        dpkit.synchronize([plain])
        dpkit.synchronize([plain, one])
        zero = dpkit.devices(1, "sim")[0]
        assert dpkit.sim.now(plain) == dpkit.sim.now(zero)
        assert dpkit.sim.now(zero) == dpkit.sim.now(one) > 0
        with dpkit.Timer([plain]) as timer:
            F.relu(torch.ones(3, device=plain))
        assert timer.seconds > 0


NO_DEVICES = [
    ([None, "sim:0"], r"devices\[0\]: None"),
    (["sim:0", "simm:1"], r"devices\[1\]: 'simm:1'"),
    ([1.5, 0], r"devices\[0\]: 1.5"),
]


@pytest.mark.parametrize(("given", "told"), NO_DEVICES)
@pytest.mark.parametrize("name", TAKE_DEVICES)
def test_what_is_no_device_in_a_list(name, given, told):
    with pytest.raises(TypeError, match=told):
        TAKE_DEVICES[name](given)


DEVICES = dpkit.devices(2, "sim")
TAKE_ALGORITHM = {
    "ColumnParallelLinear": lambda a: dpkit.ColumnParallelLinear(
        nn.Linear(4, 4), DEVICES, algorithm=a
    ),
    "RowParallelLinear": lambda a: dpkit.RowParallelLinear(
        nn.Linear(4, 4), DEVICES, algorithm=a
    ),
    "ChannelParallelConv2d": lambda a: dpkit.ChannelParallelConv2d(
        nn.Conv2d(4, 4, 3), DEVICES, algorithm=a
    ),
    "VocabParallelEmbedding": lambda a: lp.VocabParallelEmbedding(
        nn.Embedding(9, 2), DEVICES, a
    ),
    "HeadParallelAttention": lambda a: lp.HeadParallelAttention(
        attention(), DEVICES, algorithm=a
    ),
    "ParallelMLP": lambda a: lp.ParallelMLP(
        nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), DEVICES, a
    ),
    "BucketedDataParallel": lambda a: BucketedDataParallel(
        nn.Linear(3, 2), DEVICES, algorithm=a
    ),
    "Zero2": lambda a: Zero2([nn.Linear(3, 2)], DEVICES, torch.optim.SGD, a),
    "allreduce": lambda a: dpkit.allreduce(
        [torch.ones(3, device=d) for d in DEVICES], algorithm=a
    ),
}


@pytest.mark.parametrize("given", ["rong", "", None, 3])
@pytest.mark.parametrize("name", TAKE_ALGORITHM)
def test_an_unknown_algorithm_is_found_before_the_first_call(name, given):
    with pytest.raises(ValueError, match=rf"\(algorithm: '?{given}'?, known"):
        TAKE_ALGORITHM[name](given)


def stages():
    return [nn.Linear(3, 3), nn.Linear(3, 2)]


TAKE_FLAGS = {
    "recompute": lambda f: dpkit.Pipeline(stages(), DEVICES, recompute=f),
    "overlap": lambda f: BucketedDataParallel(stages()[0], DEVICES, overlap=f),
    "gather_input": lambda f: dpkit.ChannelParallelConv2d(
        nn.Conv2d(4, 4, 3), DEVICES, gather_input=f
    ),
    "causal": lambda f: lp.HeadParallelAttention(attention(), DEVICES, f),
    "balanced": lambda f: positions(8, 0, 2, f),
}  # fmt: skip


@pytest.mark.parametrize("given", ["False", None, 2])
@pytest.mark.parametrize("name", TAKE_FLAGS)
def test_what_is_neither_true_nor_false(name, given):
    with pytest.raises(TypeError, match=rf"\({name}: {given!r}\)"):
        TAKE_FLAGS[name](given)


TAKE_MODULES = {
    "module": lambda m: dpkit.DataParallel(m, DEVICES),
    "stages[1]": lambda m: dpkit.Pipeline([nn.Linear(3, 3), m], DEVICES),
    "blocks[0]": lambda m: Zero2([m], DEVICES, torch.optim.SGD),
    "block": lambda m: FlatBlock(m, DEVICES),
    "linear": lambda m: dpkit.RowParallelLinear(m, DEVICES),
    "conv": lambda m: dpkit.ChannelParallelConv2d(m, DEVICES),
    "attention": lambda m: lp.HeadParallelAttention(m, DEVICES),
    "embedding": lambda m: lp.VocabParallelEmbedding(m, DEVICES),
    "model": lambda m: layer_seconds(m, X, DEVICES[0]),
    "second": lambda m: lp.ParallelMLP(
        nn.Linear(3, 4), nn.ReLU(), m, DEVICES
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "NoneType"),
        (torch.sin, "builtin_function_or_method"),
        (nn.Conv1d, "the class Conv1d, which has to be called"),
    ],
)
@pytest.mark.parametrize("name", TAKE_MODULES)
def test_what_is_no_module(name, given, told):
    with pytest.raises(TypeError, match=rf"\({re.escape(name)}: {told}\)"):
        TAKE_MODULES[name](given)


def mean(outputs, y):
    return (outputs - y).square().mean()


NO_LOSSES = [
    (lambda outputs, y: None, TypeError, "not a tensor .returned: None"),
    (lambda outputs, y: 3.0, TypeError, "not a tensor .returned: 3.0"),
    (lambda o, y: (o - y).square(), ValueError, r"not one number .shape: \(2"),
    (nn.MSELoss(reduction="sum"), ValueError, "a sum over .*'sum'"),
    (None, TypeError, r"not a function \(loss: NoneType\)"),
    (nn.MSELoss, TypeError, "the class MSELoss, which has to be called"),
]
TRAIN = {
    "Pipeline": lambda: dpkit.Pipeline(stages(), DEVICES),
    "BucketedDataParallel": lambda: BucketedDataParallel(
        nn.Linear(3, 2), DEVICES
    ),
    "Zero2": lambda: Zero2([nn.Linear(3, 2)], DEVICES, torch.optim.SGD),
}


@pytest.mark.parametrize(("loss", "kind", "told"), NO_LOSSES)
@pytest.mark.parametrize("name", TRAIN)
def test_what_is_no_loss(name, loss, kind, told):
    way = TRAIN[name]()
    with pytest.raises(kind, match=told):
        way.forward_backward(X, torch.zeros(4, 2), loss)


REFUSED = [
    (
        lambda: dpkit.train_batch(net, EACH, X, Y, [[X[:3]]], ["cpu"], 0.1),
        r"requires a gradient \(parameters: 1\); replicate",
    ),
    (
        lambda: dpkit.train_batch(net, EACH, X, Y, [[X[:3]]], ["cpu"], -0.1),
        r"is negative.* \(lr: -0.1\)",
    ),
    (lambda: Zero2([], DEVICES, torch.optim.SGD), r"blocks: 0"),
    (
        lambda: TRAIN["Zero2"]().forward_backward_parts([X], [X], mean),
        r"parts of X: 1, of y: 1, devices: 2",
    ),
    (lambda: buckets([X]).rebuild([0, 0]), r"order: \[0, 0\], parameters: 1"),
    (lambda: assign([X], nan), r"bucket_bytes: nan"),
    (lambda: join_sequence([X, X[:2]], 0), r"rank 1: \(2, 3\)"),
    (lambda: own_part(X, 2, rank=0, world_size=2), r"dim: 2, shape: \(4, 3\)"),
    (lambda: dpkit.Pipeline(stages(), DEVICES, [[], []]), r"no actions .*: 2"),
    (lambda: lp.allgather_forward([X, X], dim=5), r"dim: 5, shape: \(4, 3\)"),
    (lambda: allreduce_plan("ring", 0), r"\(p: 0\)"),
]


def buckets(tensors):
    params = [x.clone().requires_grad_() for x in tensors]
    return Buckets(params, on_full=lambda bucket: None)


@pytest.mark.parametrize(("act", "told"), REFUSED)
def test_what_cannot_be_is_refused(act, told):
    with pytest.raises(ValueError, match=told):
        act()


NO_KINDS = [
    (
        lambda: dpkit.train_batch(net, EACH, None, Y, [[X]], ["cpu"], 0.1),
        "type: NoneType",
    ),
    (
        lambda: dpkit.train_batch(
            net, EACH, X, Y, nn.Linear(3, 2), ["cpu"], 0.1
        ),
        "type: Linear",
    ),
    (
        lambda: dpkit.train_batch(net, EACH, X, Y, [[X]], ["cpu"], "0.1"),
        r"lr: '0.1'",
    ),
    (lambda: dpkit.devices(True, "sim"), "count: True"),
    (lambda: dpkit.sim.configure(slow=[1, 2]), r"slow: \[1, 2\]"),
    (lambda: dpkit.sim.configure(slow={0: "2"}), r"slow\[0\]: '2'"),
    (lambda: dpkit.sim.configure(memory_bytes="1GB"), "memory_bytes: '1GB'"),
    (
        lambda: dpkit.launch(net, 1, timeout_seconds="3"),
        "timeout_seconds: '3'",
    ),
    (
        lambda: Zero2(stages(), DEVICES, torch.optim.SGD([X.clone()], lr=0.1)),
        "optimizer: SGD",
    ),
    (lambda: positions(8, 1.5, 2), "rank: 1.5"),
    (lambda: route_tokens([1.0, 2.0]), "type: list"),
    (lambda: SyncBatchNorm(3)(None), "type: NoneType"),
    (lambda: lp.spread(3, DEVICES), "type: int"),
    (lambda: lp.Joined(dim="x"), "dim: 'x'"),
    (lambda: dpkit.Pipeline(nn.Linear(3, 2), DEVICES), "type: Linear"),
    (
        lambda: buckets([X]).__init__([X], "25", on_full=print),
        "bucket_megabytes: '25'",
    ),
    (lambda: dpkit.allreduce(3), "type: int"),
    (
        lambda: dpkit.Pipeline(stages(), DEVICES, [["0F0"], ["1B0"]]),
        r"of the kind Action \(schedule\[0\]\[0\]: str\)",
    ),
    (
        lambda: dpkit.Pipeline(stages(), DEVICES, [1, 2]),
        r"of the kind Sequence \(schedule\[0\]: int\)",
    ),
    (
        lambda: dpkit.train_batch(
            net, nn.MSELoss, X, Y, dpkit.replicate([X], ["cpu"]), ["cpu"], 0.1
        ),
        "loss: the class MSELoss, which has to be called",
    ),
    (lambda: balance_loss([1.0]), "type: list"),
    (lambda: sgd([X.clone()], "1", 4), "lr: '1'"),
    (lambda: sgd([X.clone()], 0.1, 4.5), "batch_size: 4.5"),
    (lambda: sgd(X.clone(), 0.1, 4), r"shape: \(4, 3\)"),
    (lambda: ring_attention(*[HEADS] * 3, group=3), "group: 3"),
    (lambda: ulysses_attention(*[HEADS] * 3, group=3), "group: 3"),
    (lambda: own_experts([net], group=3), "group: 3"),
    (lambda: dpkit.sim.name_stream(3, "x"), r"stream: 3\)"),
    (lambda: units.time_unit("a"), "number .seconds: 'a'"),
    (lambda: units.show_seconds("a"), "number .seconds: 'a'"),
    (lambda: units.show_memory("a"), "number .num_bytes: 'a'"),
    (lambda: units.show_amount("a", "B"), "number .value: 'a'"),
    (lambda: units.show_factor(None), "number .factor: None"),
    (
        lambda: expert_parallel(X, route_tokens(X), [net] * 3, group="all"),
        "group: 'all'",
    ),
]
HEADS = torch.ones(1, 2, 4, 8)


@pytest.mark.parametrize(("act", "told"), NO_KINDS)
def test_what_is_of_another_kind_is_refused(act, told):
    with pytest.raises(TypeError, match=told):
        act()


def refuse_step(told, **given):
    """See a step with bad input refused, and what is there as it was."""
    device_params = dpkit.replicate([torch.ones(3, 2)], DEVICES)
    for params in device_params:
        params[0].grad = torch.full((3, 2), 5.0, device=params[0].device)
    arguments = {"lr": 0.1, "algorithm": "ring"} | given
    with pytest.raises(ValueError, match=told):
        dpkit.train_batch(net, EACH, X, Y, device_params, DEVICES, **arguments)
    held = [p for params in device_params for p in params]
    assert all((p == 1).all() and (p.grad == 5).all() for p in held)


def test_a_step_that_is_refused_has_changed_nothing():
    """Neither weights nor the gradients that were there."""
    refuse_step("algorithm: 'x'", algorithm="x")
    refuse_step("lr: nan", lr=nan)


NO_VALUES = [
    (lambda: sgd([X.clone()], nan, 4), "lr: nan"),
    (lambda: sgd([X.clone()], -1, 4), "lr: -1"),
    (lambda: sgd([X.clone()], 0.1, 0), "batch_size: 0"),
    (lambda: balance_loss(X[0]), r"scores: \(3,\)"),
    (lambda: balance_loss(X[:0]), r"scores: \(0, 3\)"),
    (lambda: balance_loss(Y[None]), r"\(1, 4\) torch.int64"),
    (
        lambda: dpkit.replicate([X, Y], DEVICES),
        r"params\[1\]: torch.int64\); p.float\(\)",
    ),
]


@pytest.mark.parametrize(("act", "told"), NO_VALUES)
def test_values_that_cannot_be_are_refused(act, told):
    with pytest.raises(ValueError, match=told):
        act()


LAZY = {
    "wrapper": lambda layer: dpkit.DataParallel(layer, DEVICES),
    "pipeline": lambda layer: dpkit.Pipeline([nn.ReLU(), layer], DEVICES),
    "columns": lambda layer: lp.ColumnParallelLinear(layer, DEVICES),
    "rows": lambda layer: lp.RowParallelLinear(layer, DEVICES),
}


@pytest.mark.parametrize("wrap", LAZY)
def test_a_lazy_layer_has_to_run_first(wrap):
    layer = nn.LazyLinear(4)
    with pytest.raises(
        ValueError,
        match=r"LazyLinear, parameter: weight\); run the module once",
    ):
        LAZY[wrap](layer)
    layer(X)
    LAZY[wrap](layer)
