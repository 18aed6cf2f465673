"""The listings of a textbook that this book grew from, on simulated GPUs.

``programs`` has what they do, as programs for GPUs, in other words. Each runs
unchanged by ``dpkit run`` and in the blocks of ``as_cuda``, and on GPUs. Its
functions run on the devices ``sim:0`` and ``sim:1`` as well.
"""

import copy
import re

import pytest
import torch
from torch import nn

from dpbook.common.datasets import load_fashion_mnist
from dpbook.devices import six_times
from dpkit import sim
from dpkit.__main__ import command_parser
from tests.runs.running_scripts import ROOT, command
from tests.seeds.programs import by_hand, concise

sim.register()
PAGE = (ROOT / "book" / "from-d2l.md").read_text(encoding="utf-8")
PROGRAMS = ROOT / "tests" / "seeds" / "programs"
# What the listing printed on four cards of the kind V100, in seconds, after
# the first time, which is not waited for: there it is the time to load
# libraries and to issue fifty products, and a simulation loads nothing.
SECONDS = [0.493, 2.000, 0.497, 2.445, 0.737]
V100 = {"accelerator": "v100-pcie", "link": "pcie3", "host": "eager"}
KINDS = [
    "sim",
    "as_cuda",
    pytest.param("cuda", marks=pytest.mark.cuda),
]


@pytest.fixture(params=KINDS)
def two(request, need_gpus):
    """Two devices: simulated, those that cuda means, or GPUs."""
    if request.param == "cuda":
        need_gpus(2)
        yield [torch.device("cuda", i) for i in range(2)]
    elif request.param == "sim":
        with sim.machine(num_devices=2):
            yield [torch.device("sim", i) for i in range(2)]
    else:
        with sim.machine(num_devices=2), sim.as_cuda():
            yield [torch.device("cuda", i) for i in range(2)]


def assert_times_of_the_listing(found):
    first, *others = found
    assert first < 1e-3  # it printed 0.240
    assert others == pytest.approx(SECONDS, rel=0.03)


def test_six_times_by_the_command():
    options = ["--gpus", "4", "--meta"]
    for name, value in V100.items():
        options += [f"--{name}", value]
    script = str(ROOT / "book" / "dpbook" / "devices" / "six_times.py")
    process = command("run", *options, script, cwd=ROOT)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    (line,) = re.findall(r"^seconds: (.*)$", text, re.MULTILINE)
    assert_times_of_the_listing([float(word) for word in line.split()])


def test_six_times_in_a_block():
    with sim.machine(num_devices=4, backing="meta", **V100), sim.as_cuda():
        assert_times_of_the_listing(six_times.six_times())


def test_the_page_has_these_times():
    """That for readers of the textbook, which no cell computes."""
    with sim.machine(num_devices=4, backing="meta", **V100), sim.as_cuda():
        found = [f"{seconds:.3f}" for seconds in six_times.six_times()]
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines()]
    (simulated,) = [row[1:] for row in rows if row[0] == "simulated"]
    assert simulated == found
    (printed,) = [row[1:] for row in rows if row[0] == "four V100"]
    assert printed == [f"{seconds:.3f}" for seconds in [0.240, *SECONDS]]


def test_the_machines_of_the_page_can_be_simulated():
    rows = re.findall(r"^\| `(p\w+\.\w+)` .* \| `(--gpus .*)` \|$", PAGE, re.M)
    assert len(rows) == 4
    for _, options in rows:
        words = ["run", *options.split(), "train.py"]
        chosen = command_parser().parse_args(words)
        with sim.machine(
            num_devices=chosen.gpus,
            accelerator=chosen.accelerator,
            link=chosen.link,
            memory_bytes=chosen.memory and round(1e9 * chosen.memory),
        ):
            assert sim.label().startswith("simulated (")


def test_six_times_of_other_gpus():
    newer = {"accelerator": "h100", "link": "nvlink4", "host": "eager"}
    with sim.machine(num_devices=4, backing="meta", **newer), sim.as_cuda():
        found = six_times.six_times()
    assert all(new < old for new, old in zip(found[1:], SECONDS, strict=True))


@pytest.mark.cuda
def test_six_times_on_gpus():
    found = six_times.six_times(size=400)  # the CPU may stand in
    assert len(found) == 6
    assert min(found) > 0


@pytest.mark.parametrize("gpus", ["2", "4"])
def test_what_a_listing_prints(gpus):
    """Parameters, allreduce and scatter, before the training."""
    script = str(PROGRAMS / "by_hand.py")
    process = command("run", "--gpus", gpus, script, gpus, cwd=ROOT)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    last = int(gpus) - 1
    assert f"device='cuda:{last}', requires_grad=True)\nb1 grad: None" in text
    total = sum(range(1, int(gpus) + 1))
    assert text.count(f"tensor([[{total}., {total}.]], device=") == int(gpus)
    rows = "[ 0,  1,  2,  3,  4]" if gpus == "1" else "[0, 1, 2, 3, 4]"
    assert f"output: (tensor([{rows}" in text
    assert f"[15, 16, 17, 18, 19]], device='cuda:{last}'))" in text
    assert re.search(r"test acc: 0\.\d\d, 0\.\d+ sec/epoch on \[dev", text)


def test_parameters_and_gradients(two):
    torch.manual_seed(0)
    params = by_hand.make_params()
    copies = by_hand.get_params(params, two[1])
    assert all(torch.equal(p, q.cpu()) for p, q in zip(params, copies))
    assert {p.device for p in copies} == {two[1]}
    assert copies[1].grad is None


def test_allreduce_leaves_the_sum_on_all(two):
    data = [torch.full((1, 2), i + 1.0, device=d) for i, d in enumerate(two)]
    by_hand.allreduce(data)
    assert [x.tolist() for x in data] == [[[3.0, 3.0]]] * 2
    assert [x.device for x in data] == two


def test_a_batch_is_split_in_order(two):
    X, y = torch.arange(20).reshape(4, 5), torch.arange(4)
    X_shards, y_shards = by_hand.split_batch(X, y, two)
    assert [x.tolist() for x in X_shards] == [X[:2].tolist(), X[2:].tolist()]
    assert [y.tolist() for y in y_shards] == [[0, 1], [2, 3]]
    assert [x.device for x in X_shards] == two


def test_a_step_on_two_devices_is_that_of_one(two):
    torch.manual_seed(0)
    params = [10 * p for p in by_hand.make_params()]  # else they learn late
    images, labels = (part[:30] for part in load_fashion_mnist()[0])
    learned, losses = [], []
    for devices in ([torch.device("cpu")], two):
        fresh = [p.clone() for p in params]
        replicas = [by_hand.get_params(fresh, d) for d in devices]
        if devices is two:
            found = by_hand.train_batch(images, labels, replicas, devices, 0.1)
        else:
            found = [one_device_step(images, labels, replicas[0])]
        losses.append(sum(one.item() for one in found))
        learned.append([[p.detach().cpu() for p in r] for r in replicas])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    (alone,), (first, second) = learned
    for p, q, r in zip(alone, first, second):
        assert torch.equal(q, r)
        assert torch.allclose(p, q, rtol=0, atol=1e-6)
    assert not torch.allclose(alone[-1], params[-1], rtol=0, atol=1e-4)


def test_three_steps_on_four_devices():
    torch.manual_seed(0)
    params = by_hand.make_params()
    images, labels = (part[:48] for part in load_fashion_mnist()[0])
    learned = []
    with sim.machine(num_devices=4):
        for k in (1, 4):
            devices = [torch.device("sim", i) for i in range(k)]
            replicas = [by_hand.get_params(params, d) for d in devices]
            for X, y in by_hand.batches_of(images, labels, 16):
                by_hand.train_batch(X, y, replicas, devices, 0.2)
            learned.append([[p.cpu() for p in r] for r in replicas])
    (alone,), together = learned
    assert not torch.equal(alone[-1], params[-1])
    for replica in together:
        for p, q in zip(replica, alone, strict=True):
            torch.testing.assert_close(p, q)


def test_products_that_are_copied_without_waiting(two):
    x = torch.rand(40, 40, device=two[1])
    products = six_times.squares(x)
    copies = [y.to("cpu", non_blocking=True) for y in products]
    torch.get_device_module(two[1]).synchronize(two[1])
    assert torch.allclose(copies[49], x.cpu() @ x.cpu())


def one_device_step(X, y, params):
    """Take the same step without anything that is scattered."""
    one = by_hand.loss(by_hand.lenet(X, params), y).sum()
    one.backward()
    with torch.no_grad():
        for p in params:
            p -= 0.1 * p.grad / len(X)
    return one


def test_accuracy_on_several_devices_is_that_of_one(two):
    torch.manual_seed(0)
    net = concise.resnet18(10, width=4)
    images, labels = (part[:60] for part in load_fashion_mnist()[1])
    batches = list(zip(images.split(25), labels.split(25)))
    with torch.no_grad():
        right = (net.eval()(images).argmax(1) == labels).sum()
    parallel = nn.DataParallel(net.to(two[0]), device_ids=two)
    found = concise.evaluate_accuracy_gpus(parallel, batches, two[0])
    assert found == pytest.approx(int(right) / 60)


def test_the_wrapper_learns_what_one_device_learns(two):
    """Batch norm has the rows of a device, so it is frozen here."""
    torch.manual_seed(0)
    net = concise.resnet18(10, width=4)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.train = lambda mode=True, layer=layer: layer
            layer.training = False
    losses, learned = [], []
    for devices in (two[:1], two):
        torch.manual_seed(1)
        parallel, found, seconds = concise.train(
            copy.deepcopy(net), devices, 64, 0.1, num_steps=2
        )
        assert len(parallel.device_ids) == len(devices)
        assert seconds > 0
        losses.append(found)
        learned.append([p.detach().cpu() for p in parallel.parameters()])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for p, q in zip(*learned):
        assert torch.allclose(p, q, rtol=0, atol=1e-5)


def test_two_gpus_take_longer_for_a_small_network():
    """As in the textbook: 1.7 s an epoch on one, and 2.3 s on two."""
    torch.manual_seed(0)
    params = by_hand.make_params()
    seconds = []
    with sim.machine(num_devices=2, accelerator="v100"), sim.as_cuda():
        for k in (1, 2):
            devices = [torch.device("cuda", i) for i in range(k)]
            seconds.append(by_hand.train(params, devices, 256, 0.2)[1])
    assert seconds[1] > 1.2 * seconds[0]
