"""What else the page shows of MXNet and Gluon."""

import mxnet as mx
from common import apart, step_factor
from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn
from mxnet_step import (
    allreduce,
    arrays,
    copies,
    losses_of,
    make_net,
    make_trainer,
    split_batch,
    take_step,
    train_by_hand,
)

# -- a rate for 256 rows, and a last batch of 96


def last_batch(params, batches):
    """Return how long the step of Trainer is, in right ones."""
    X, y = (part[:96] for part in batches[0])
    right = train_by_hand(params, [(X, y)], 1)[0]
    devices = [mx.cpu(0), mx.cpu(1)]
    factors = {}
    for name, batch_size in (("step(256)", 256), ("step(96)", 96)):
        net = make_net(params, devices)
        take_step(net, make_trainer(net), X, y, devices, batch_size)
        factors[name] = step_factor(params, copies(net, devices)[0], right)
    return factors


# -- how a batch is cut


def shards():
    """Return the rows per device."""
    rows = {}
    for num_rows, k in ((257, 5), (6, 4), (2, 3)):
        parts = gluon.utils.split_data(np.zeros(num_rows), k, even_split=False)
        rows[f"{num_rows} on {k}"] = [len(part) for part in parts]
    return rows


def split_of_257():
    try:
        gluon.utils.split_data(np.zeros(257), 2)
    except ValueError as error:
        return f"ValueError: {str(error).splitlines()[0]}"
    return "no error"


# -- strictness, and batch norm over rows on two devices


def sum_over_devices():
    """Return where a sum of tensors of two devices lies."""
    return str((np.ones(2, ctx=mx.cpu(0)) + np.ones(2, ctx=mx.cpu(1))).ctx)


def allreduced():
    """Return [[1, 1]] and [[2, 2]] of two devices after ``allreduce``."""
    tensors = [np.ones((1, 2), ctx=mx.cpu(r)) * (r + 1) for r in range(2)]
    allreduce(tensors)
    return [tensor.tolist() for tensor in tensors]


def batch_norm():
    """Return what the first of the rows 0, 1, …, 7 becomes."""
    devices = [mx.cpu(0), mx.cpu(1)]
    layer = nn.BatchNorm(epsilon=1e-5)
    layer.cast("float64")
    layer.initialize(ctx=devices)
    rows = np.arange(8, dtype="float64").reshape(8, 1)
    parts = gluon.utils.split_and_load(rows, devices)
    with autograd.record():
        normalized = [layer(part) for part in parts]
    return float(normalized[0][0, 0])


# -- ResNet-18, and its accuracy on all devices


class Residual(nn.Block):
    def __init__(self, channels, strides=1, project=False):
        super().__init__()
        self.body = nn.Sequential()
        self.body.add(
            nn.Conv2D(channels, 3, strides, 1),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, 3, 1, 1),
            nn.BatchNorm(),
        )
        self.skip = nn.Conv2D(channels, 1, strides) if project else None

    def forward(self, X):
        skipped = self.skip(X) if self.skip else X
        return npx.relu(self.body(X) + skipped)


def resnet18(num_classes):
    net = nn.Sequential()
    net.add(nn.Conv2D(64, 3, 1, 1), nn.BatchNorm(), nn.Activation("relu"))
    for channels in (64, 128, 256, 512):
        wider = channels > 64
        net.add(
            Residual(channels, strides=2 if wider else 1, project=wider),
            Residual(channels),
        )
    net.add(nn.GlobalAvgPool2D(), nn.Dense(num_classes))
    return net


def evaluate_accuracy_gpus(net, batches):
    """Return the share of rows that are classified right."""
    devices = next(iter(net.collect_params().values())).list_ctx()
    num_correct = num_rows = 0
    for X, y in batches:
        outputs_and_labels = [
            (net(X_shard), y_shard)
            for X_shard, y_shard in zip(*split_batch(X, y, devices))
        ]  # asked on all devices, before the first result is read
        for outputs, labels in outputs_and_labels:
            found = outputs.argmax(axis=1).astype(labels.dtype)
            num_correct += int((found == labels).sum())
        num_rows += len(y)
    return num_correct / num_rows


def train_resnet18(batches, k):
    """Return the net's copies and its accuracy after two steps of 15 rows."""
    devices = [mx.cpu(rank) for rank in range(k)]
    mx.random.seed(0)
    net = resnet18(10)
    net.initialize(init.Normal(sigma=0.01), ctx=devices)
    trainer = make_trainer(net)
    few = [arrays(X[:15].astype("float32"), y[:15]) for X, y in batches[:2]]
    for X, y in few:
        shards = split_batch(X, y, devices)
        with autograd.record():
            losses = [
                losses_of(net(X_shard), y_shard)
                for X_shard, y_shard in zip(*shards)
            ]
        for loss in losses:
            loss.backward()
        trainer.step(len(X))
    trained = [
        p for p in net.collect_params().values() if p.grad_req != "null"
    ]
    replicas = [[p.data(d).asnumpy() for p in trained] for d in devices]
    return apart(replicas), evaluate_accuracy_gpus(net, few)


def facts(params, batches):
    return {
        "last batch": last_batch(params, batches),
        "shards": shards(),
        "split of 257": split_of_257(),
        "sum over devices": sum_over_devices(),
        "allreduce": allreduced(),
        "batch norm": batch_norm(),
        "ResNet-18 on two devices": train_resnet18(batches, 2),
    }
