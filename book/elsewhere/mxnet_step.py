"""One step of LeNet in MXNet, on the rows of a batch in shards."""

import mxnet as mx
from common import RATE
from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn

npx.set_np()

losses_of = gluon.loss.SoftmaxCrossEntropyLoss()


# -- from scratch: parameters of each device


def pool(h):
    return npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))


def lenet(X, params):
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = npx.convolution(X, W1, b1, kernel=(3, 3), num_filter=20)
    h = pool(npx.relu(h))
    h = npx.convolution(h, W2, b2, kernel=(5, 5), num_filter=50)
    h = pool(npx.relu(h)).reshape(len(X), -1)
    h = npx.relu(np.dot(h, W3) + b3)
    return np.dot(h, W4) + b4


def get_params(params, device):
    params = [np.array(p, dtype=p.dtype, ctx=device) for p in params]
    for p in params:
        p.attach_grad()
    return params


def allreduce(tensors):
    """Put the sum of the tensors in each of them."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total[:] += tensor.copyto(total.ctx)
    for tensor in tensors[1:]:
        total.copyto(tensor)


def split_batch(X, y, devices):
    # Without even_split=False, 257 rows for 2 devices are refused.
    return (
        gluon.utils.split_and_load(X, devices, even_split=False),
        gluon.utils.split_and_load(y, devices, even_split=False),
    )


def train_batch(X, y, replicas, devices):
    shards = split_batch(X, y, devices)
    with autograd.record():
        losses = [
            losses_of(lenet(X_shard, params), y_shard)
            for params, X_shard, y_shard in zip(replicas, *shards)
        ]
    for loss in losses:
        loss.backward()  # of the sum of its rows
    for copies in zip(*replicas):
        allreduce([p.grad for p in copies])
    for params in replicas:
        for p in params:
            p[:] -= RATE * p.grad / len(X)


def arrays(X, y):
    return np.array(X, dtype=X.dtype), np.array(y, dtype=y.dtype)


def train_by_hand(params, batches, k):
    devices = [mx.cpu(rank) for rank in range(k)]
    replicas = [get_params(params, device) for device in devices]
    for X, y in batches:
        train_batch(*arrays(X, y), replicas, devices)
    return [[p.asnumpy() for p in params] for params in replicas]


# -- concise: Gluon's network, whose parameters are on all devices


def make_net(params, devices):
    net = nn.Sequential()
    net.add(
        nn.Conv2D(20, kernel_size=3, activation="relu"),
        nn.AvgPool2D(),
        nn.Conv2D(50, kernel_size=5, activation="relu"),
        nn.AvgPool2D(),
        nn.Dense(128, activation="relu"),
        nn.Dense(10),
    )
    net.cast("float64")
    net.initialize(init.Zero(), ctx=devices)
    for device in devices:  # the first call gives parameters their shapes
        net(np.zeros((1, 1, 28, 28), ctx=device, dtype="float64"))
    for p, value in zip(net.collect_params().values(), params):
        p.set_data(turned(value))
    return net


def turned(value):
    # A dense layer keeps its weight as (outputs, inputs).
    return value.T if value.ndim == 2 else value


def make_trainer(net):
    return gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": RATE}, kvstore="device"
    )


def take_step(net, trainer, X, y, devices, batch_size):
    shards = split_batch(*arrays(X, y), devices)
    with autograd.record():
        losses = [
            losses_of(net(X_shard), y_shard)
            for X_shard, y_shard in zip(*shards)
        ]
    for loss in losses:
        loss.backward()
    trainer.step(batch_size)  # adds up the gradients, and divides by it


def train_by_trainer(params, batches, k):
    devices = [mx.cpu(rank) for rank in range(k)]
    net = make_net(params, devices)
    trainer = make_trainer(net)
    for X, y in batches:
        take_step(net, trainer, X, y, devices, batch_size=len(X))
    return copies(net, devices)


def copies(net, devices):
    """Return what each device holds."""
    params = net.collect_params().values()
    return [
        [turned(p.data(device).asnumpy()) for p in params]
        for device in devices
    ]


WAYS = {
    "parameters per device": train_by_hand,
    "Trainer": train_by_trainer,
}
