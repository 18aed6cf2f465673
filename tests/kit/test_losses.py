"""A loss that is a mean is refused where a sum belongs, and the reverse."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.losses import check_mean, check_sum, tried_as_mean, tried_as_sum

WEIGHT = torch.tensor([1.0, 2.0, 4.0])


def task(rows=7, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(rows, 3).to(dtype), 3 * torch.arange(rows) // rows


class Focal(nn.Module):
    """A loss of one's own, which says nothing of what it does."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def forward(self, outputs, y):
        found = F.cross_entropy(outputs, y, reduction="none")
        return self.reduce((1 - (-found).exp()) ** 2 * found)


class Trainer:
    def mean(self, outputs, y):
        return F.cross_entropy(outputs, y)

    def sum(self, outputs, y):
        return F.cross_entropy(outputs, y, reduction="sum")


SAYS_MEAN = {
    "module": nn.CrossEntropyLoss(),
    "function": F.cross_entropy,
    "partial": partial(F.cross_entropy, label_smoothing=0.1),
    "partial, mean": partial(F.mse_loss, reduction="mean"),
    "batchmean": nn.KLDivLoss(reduction="batchmean"),
}
TURNS_OUT_MEAN = {
    "lambda": lambda outputs, y: F.cross_entropy(outputs, y),
    "module": Focal(torch.mean),
    "method": Trainer().mean,
    "weights": lambda o, y: F.cross_entropy(o, y, WEIGHT.to(o)),
    "left out": lambda o, y: F.cross_entropy(o, y, ignore_index=0),
    "and more": lambda o, y: F.cross_entropy(o, y) + 0.1,
}
SUMS = {
    "each": nn.CrossEntropyLoss(reduction="none"),
    "sum": nn.CrossEntropyLoss(reduction="sum"),
    "partial": partial(F.cross_entropy, reduction="sum"),
    "weights": lambda o, y: F.cross_entropy(
        o, y, WEIGHT.to(o), reduction="sum"
    ),
    "left out": nn.CrossEntropyLoss(ignore_index=0, reduction="sum"),
    "lambda": lambda o, y: F.cross_entropy(o, y, reduction="sum") / 256,
    "each, by hand": lambda outputs, y: (outputs[:, 0] - y) ** 2,
    "mean times rows": lambda o, y: F.cross_entropy(o, y) * len(y),
    "module": Focal(torch.sum),
    "method": Trainer().sum,
    "noise": lambda o, y: (o + torch.randn_like(o)).square().sum(),
    "signs": lambda outputs, y: (outputs[:, 0] * (y - 1)).sum(),
    "nothing": lambda outputs, y: 0 * outputs.sum(),
    "no number": lambda outputs, y: outputs.sum() * torch.nan,
}


def step(loss, devices, X, y):
    replicas = dpkit.replicate([torch.eye(3, dtype=X.dtype)], devices)

    def net(X, params):
        return X @ params[0]

    dpkit.train_batch(net, loss, X, y, replicas, devices, lr=0.1)
    return replicas


@pytest.mark.parametrize("loss", SAYS_MEAN.values(), ids=SAYS_MEAN)
def test_a_loss_that_says_that_it_is_a_mean(get_devices, loss):
    told = r"the loss is a mean over examples \(reduction: '(batch)?mean'\)"
    for k, rows in ((1, 7), (2, 1)):
        with pytest.raises(ValueError, match=told):
            step(loss, get_devices(k), *task(rows))
    batches = [task()]
    with pytest.raises(ValueError, match=told):
        dpkit.train(
            lambda X, params: X @ params[0], loss, [torch.eye(3)],
            batches, batches, get_devices(2), 0.1, 1,
        )  # fmt: skip


@pytest.mark.parametrize("loss", TURNS_OUT_MEAN.values(), ids=TURNS_OUT_MEAN)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_loss_that_turns_out_a_mean(get_devices, loss, k):
    told = r"is a mean over examples, not their sum \(rows: \d, loss: "
    with pytest.raises(ValueError, match=told):
        step(loss, get_devices(k), *task())


def test_it_is_refused_before_anything_changes(get_devices):
    devices, (X, y) = get_devices(2), task()
    replicas = dpkit.replicate([torch.eye(3)], devices)
    for _ in range(2):
        with pytest.raises(ValueError, match="is a mean"):
            dpkit.train_batch(
                lambda X, params: X @ params[0], TURNS_OUT_MEAN["lambda"],
                X, y, replicas, devices, lr=0.1,
            )  # fmt: skip
    for (p,) in replicas:
        assert p.grad is None
        assert torch.equal(p.cpu(), torch.eye(3))


@pytest.mark.parametrize("loss", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize(("rows", "k"), [(7, 1), (7, 3), (1, 2)])
def test_sums_are_taken(get_devices, loss, rows, k):
    step(loss, get_devices(k), *task(rows))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["lambda", "sum", "partial"])
def test_sums_of_half_precision_are_taken(dtype, name):
    step(SUMS[name], dpkit.devices(2, "sim"), *task(301, dtype))


def test_the_network_runs_once_and_the_loss_twice_more_at_first():
    """On three devices: the shards have 3, 2 and 2 rows."""
    devices, (X, y) = dpkit.devices(3, "sim"), task()
    replicas = dpkit.replicate([torch.eye(3)], devices)
    runs, losses = [], []

    def net(X, params):
        runs.append(len(X))
        return F.dropout(X @ params[0])

    def loss(outputs, y):
        losses.append((len(y), outputs.requires_grad))
        assert len(outputs) == len(y)
        return F.cross_entropy(outputs, y, reduction="sum")

    for _ in range(2):
        dpkit.train_batch(net, loss, X, y, replicas, devices, lr=0.1)
    assert runs == 2 * [3, 2, 2]
    with_graph = [rows for rows, graph in losses if graph]
    without = [rows for rows, graph in losses if not graph]
    assert with_graph == 2 * [3, 2, 2]
    assert without == [1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("words_first", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_outputs_that_have_not_a_row_for_each_label(
    get_devices, words_first, k
):
    """Of a language model: a row for each word, or the words first."""
    X, y = torch.randn(6, 5, 3), torch.randint(3, (6, 5))
    devices = get_devices(k)
    replicas = dpkit.replicate([torch.eye(3)], devices)

    def net(X, params):
        outputs = X @ params[0]
        if words_first:
            return outputs.transpose(0, 1)
        return outputs.flatten(0, 1)

    def loss(outputs, y):
        y = y.T if words_first else y
        return F.cross_entropy(
            outputs.reshape(-1, 3), y.flatten(), reduction="sum"
        )

    dpkit.train_batch(net, loss, X, y, replicas, devices, lr=0.1)


def traced(loss, **machine):
    with dpkit.sim.machine(**machine):
        devices = dpkit.devices(2, "sim")
        replicas = dpkit.replicate([torch.eye(3)], devices)
        X, y = task()
        with dpkit.sim.trace() as timeline:
            dpkit.train_batch(
                lambda X, params: X @ params[0], loss, X, y, replicas,
                devices, lr=0.1,
            )  # fmt: skip
    return [(s.device, s.name, s.start, s.end) for s in timeline.spans]


def test_the_losses_of_all_examples_cost_nothing_to_try(monkeypatch):
    found = traced(SUMS["each"])
    monkeypatch.setattr(
        "dpkit.data_parallel.step.tried_as_sum", lambda loss: loss
    )
    assert found == traced(SUMS["each"])


def test_where_there_are_no_numbers_nothing_is_tried(monkeypatch):
    found = traced(TURNS_OUT_MEAN["lambda"], backing="meta")
    monkeypatch.setattr(
        "dpkit.data_parallel.step.tried_as_sum", lambda loss: loss
    )
    assert found == traced(TURNS_OUT_MEAN["lambda"], backing="meta")


# The other way about: a pipeline wants a mean, in which all count alike.


def pipelined(loss, X, y, m=3, **options):
    layers = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3)).to(X.dtype)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(layers, 2), dpkit.devices(2, "sim"), "1f1b", m,
        **options,
    )  # fmt: skip
    return pipeline, lambda: pipeline.forward_backward(X, y, loss)


SAYS_NO_MEAN = {
    "sum": (nn.CrossEntropyLoss(reduction="sum"), r"reduction: 'sum'"),
    "sum, partial": (
        partial(F.cross_entropy, reduction="sum"), r"reduction: 'sum'"
    ),
    "weights": (nn.CrossEntropyLoss(WEIGHT), r"shape of weight: \(3,\)"),
    "weights, partial": (
        partial(F.nll_loss, weight=WEIGHT), r"shape of weight: \(3,\)"
    ),
    "left out": (nn.CrossEntropyLoss(ignore_index=0), "ignore_index: 0"),
    "left out, partial": (
        partial(F.cross_entropy, ignore_index=1), "ignore_index: 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "words"), SAYS_NO_MEAN.values(), ids=SAYS_NO_MEAN
)
def test_a_loss_that_says_that_it_is_no_plain_mean(loss, words):
    pipeline, run = pipelined(loss, *task())
    with pytest.raises(ValueError, match=words):
        run()
    assert all(p.grad is None for p in pipeline.parameters())


TURNS_OUT_NO_MEAN = {
    "sum": Focal(torch.sum),
    "weights": TURNS_OUT_MEAN["weights"],
    "left out": TURNS_OUT_MEAN["left out"],
    "method": Trainer().sum,
}


@pytest.mark.parametrize(
    "loss", TURNS_OUT_NO_MEAN.values(), ids=TURNS_OUT_NO_MEAN
)
@pytest.mark.parametrize(("rows", "m"), [(7, 3), (3, 3), (40, 2)])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_loss_that_turns_out_no_plain_mean(loss, rows, m, recompute):
    _, run = pipelined(loss, *task(rows), m, recompute=recompute)
    with pytest.raises(ValueError, match=r"all examples count alike \(rows: "):
        run()


def test_labels_that_are_left_out_unless_told_otherwise():
    X, y = task()
    y[5:] = -100
    for loss in (nn.CrossEntropyLoss(), F.cross_entropy):
        pipeline, run = pipelined(loss, X, y)
        with pytest.raises(ValueError, match=r"labels: 7, left out: 2\)"):
            run()
        assert all(p.grad is None for p in pipeline.parameters())
    _, run = pipelined(lambda o, y: F.cross_entropy(o, y), X, y)
    with pytest.raises(ValueError, match="all examples count alike"):
        run()


def test_labels_that_are_left_out_in_a_later_batch():
    X, y = task()
    pipeline, run = pipelined(nn.CrossEntropyLoss(), X, y)
    run()
    before = [p.grad.clone() for p in pipeline.parameters()]
    y[5:] = -100
    with pytest.raises(ValueError, match=r"labels: 7, left out: 2\)"):
        run()
    found = [p.grad for p in pipeline.parameters()]
    assert all(map(torch.equal, found, before))


@pytest.mark.parametrize("where", ["cpu", "sim:1"])
def test_no_device_works_for_the_labels_of_later_batches(monkeypatch, where):
    def spans():
        with dpkit.sim.machine():
            X, y = task()
            _, run = pipelined(nn.CrossEntropyLoss(), X, y.to(where))
            run()
            with dpkit.sim.trace() as timeline:
                run()
        return [(s.device, s.name, s.start, s.end) for s in timeline.spans]

    found = spans()
    monkeypatch.setattr(
        "dpkit.network_partition.pipeline.check_labels", lambda loss, y: None
    )
    assert found == spans()


class WordsFirst(nn.Module):
    def forward(self, X):
        return X.transpose(0, 1)


@pytest.mark.parametrize("words_first", [False, True])
def test_outputs_of_a_pipeline_that_have_not_a_row_for_each_label(words_first):
    last = WordsFirst() if words_first else nn.Flatten(0, 1)
    stages = [nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 3), last)]
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), "1f1b", 3)
    X, y = torch.randn(7, 5, 3), torch.randint(3, (7, 5))
    calls = []

    def loss(outputs, y):
        calls.append(outputs.requires_grad)
        y = y.T if words_first else y
        return F.cross_entropy(outputs.reshape(-1, 3), y.flatten())

    pipeline.forward_backward(X, y, loss)
    assert calls.count(True) == 3
    assert calls.count(False) == (0 if words_first else 2)


MEANS = {
    "module": nn.CrossEntropyLoss(),
    "function": F.cross_entropy,
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "lambda": TURNS_OUT_MEAN["lambda"],
    "own": Focal(torch.mean),
    "and more": TURNS_OUT_MEAN["and more"],
    "weighted, over rows": lambda o, y: F.cross_entropy(
        o, y, WEIGHT.to(o), ignore_index=0, reduction="sum"
    ) / len(y),
    "weights of elements": lambda o, y: F.binary_cross_entropy_with_logits(
        o, o.detach().sigmoid(), WEIGHT.to(o)
    ),
    "noise": lambda o, y: (o + torch.randn_like(o)).square().mean(),
    "no number": lambda outputs, y: outputs.mean() * torch.nan,
}  # fmt: skip


@pytest.mark.parametrize("loss", MEANS.values(), ids=MEANS)
@pytest.mark.parametrize(
    ("rows", "m", "recompute"), [(7, 3, True), (3, 3, False), (4, 1, False)]
)
def test_means_are_taken(loss, rows, m, recompute):
    _, run = pipelined(loss, *task(rows), m, recompute=recompute)
    for _ in range(2):
        run()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.double])
def test_means_of_other_precision_are_taken(dtype):
    for name in ("lambda", "own", "and more"):
        _, run = pipelined(MEANS[name], *task(301, dtype), m=5)
        run()


def test_the_first_batch_alone_is_tried():
    calls = []

    def loss(outputs, y):
        calls.append((len(y), outputs.requires_grad))
        return F.cross_entropy(outputs, y)

    _, run = pipelined(loss, *task(), m=3)
    for _ in range(2):
        run()
    with_graph = [rows for rows, graph in calls if graph]
    without = [rows for rows, graph in calls if not graph]
    assert with_graph == 2 * [3, 2, 2]
    assert without == [5, 4]


def test_a_loss_that_says_that_it_is_a_mean_costs_nothing_to_try():
    for loss in (nn.MSELoss(), F.mse_loss, F.cross_entropy):
        assert tried_as_mean(loss) is loss


def test_what_a_loss_does_not_say_is_not_held_against_it():
    for loss in (torch.add, torch.nn.functional.pad, Focal(torch.sum)):
        check_sum(loss)
        check_mean(loss)
    assert tried_as_sum(torch.add)(torch.ones(3), torch.ones(3)).sum() == 6
