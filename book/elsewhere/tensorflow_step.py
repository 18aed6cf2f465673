"""One step of LeNet in TensorFlow, on the rows of a batch in shards."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the same sums on each processor

import keras
import numpy as np
import tensorflow as tf
from common import RATE

# The processor plays five devices.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 5,
)
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")


# -- the network: on processors, images have their channels last


def channels_last(params):
    """Turn parameters for (b, c, h, w) into those for (b, h, w, c)."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    W1, W2 = (W.transpose(2, 3, 1, 0) for W in (W1, W2))
    W3 = W3.reshape(50, 4, 4, 128).transpose(1, 2, 0, 3).reshape(800, 128)
    return [W1, b1, W2, b2, W3, b3, W4, b4]


def channels_first(params):
    """Undo ``channels_last``."""
    W1, b1, W2, b2, W3, b3, W4, b4 = map(np.asarray, params)
    W1, W2 = (W.transpose(3, 2, 0, 1) for W in (W1, W2))
    W3 = W3.reshape(4, 4, 50, 128).transpose(2, 0, 1, 3).reshape(800, 128)
    return [W1, b1, W2, b2, W3, b3, W4, b4]


def lenet(params, X):
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = tf.nn.relu(tf.nn.conv2d(X, W1, 1, "VALID") + b1)
    h = tf.nn.avg_pool2d(h, 2, 2, "VALID")
    h = tf.nn.relu(tf.nn.conv2d(h, W2, 1, "VALID") + b2)
    h = tf.nn.avg_pool2d(h, 2, 2, "VALID")
    h = tf.nn.relu(tf.reshape(h, (-1, 800)) @ W3 + b3)
    return h @ W4 + b4


def sum_of_losses(params, X, y):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        y, lenet(params, X)
    )
    return tf.reduce_sum(losses)


def images(X):
    return X.transpose(0, 2, 3, 1)


# -- from scratch: variables of each device


def get_params(params, device):
    with tf.device(device):
        return [tf.Variable(p) for p in params]


def allreduce(tensors):
    """Return the sum of the tensors, on the device of each."""
    with tf.device(tensors[0].device):
        total = tf.add_n(tensors)
    sums = []
    for tensor in tensors:
        with tf.device(tensor.device):
            sums.append(tf.identity(total))
    return sums


def split(x, k):
    return np.array_split(x, k)


def train_batch(X, y, replicas, devices):
    gradients = []
    shards = split(X, len(devices)), split(y, len(devices))
    for device, params, X_shard, y_shard in zip(devices, replicas, *shards):
        with tf.device(device), tf.GradientTape() as tape:
            loss = sum_of_losses(params, X_shard, y_shard)
        gradients.append(tape.gradient(loss, params))
    sums = [allreduce(copies) for copies in zip(*gradients)]
    for params, summed in zip(replicas, zip(*sums)):
        for p, g in zip(params, summed):
            p.assign_sub(RATE / len(X) * g)


def train_by_hand(params, batches, k):
    devices = [f"CPU:{rank}" for rank in range(k)]
    replicas = [get_params(channels_last(params), d) for d in devices]
    for X, y in batches:
        train_batch(images(X), y, replicas, devices)
    return [channels_first(params) for params in replicas]


# -- MirroredStrategy: a variable with a copy on each device


def make_strategy(k):
    # The sum is made on the first device. The default is a ring, of which a
    # second one in the same process aborts.
    star = tf.distribute.ReductionToOneDevice()
    devices = [f"CPU:{rank}" for rank in range(k)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=star)


@tf.function
def replica_step(params, X, y, num_rows):
    with tf.GradientTape() as tape:
        loss = sum_of_losses(params, X, y) / num_rows
    gradients = tape.gradient(loss, params)
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    for p, g in zip(params, gradients):
        p.assign_sub(RATE * g)


def train_mirrored(params, batches, k):
    strategy = make_strategy(k)
    once = tf.VariableAggregation.ONLY_FIRST_REPLICA
    with strategy.scope():
        params = [
            tf.Variable(p, aggregation=once) for p in channels_last(params)
        ]
    for X, y in batches:
        shards = [scatter(strategy, x, k) for x in (images(X), y)]
        strategy.run(replica_step, args=(params, *shards, float(len(X))))
    return copies(strategy, params)


def scatter(strategy, x, k):
    """Return the rows of each device, as one distributed value."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            split(x, k)[context.replica_id_in_sync_group]
        )
    )


def copies(strategy, params):
    """Return what each device holds, with channels first."""
    held = [strategy.experimental_local_results(p) for p in params]
    return [channels_first(params) for params in zip(*held)]


# -- concise: Keras, which is given the model and the loss


def make_net(params, reduction, rate):
    net = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(20, 3, activation="relu"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Conv2D(50, 5, activation="relu"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    net.set_weights(channels_last(params))
    net.compile(
        keras.optimizers.SGD(rate),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=reduction
        ),
    )
    return net


def fit(params, batches, k, reduction, rate):
    """Train by Keras, whose first batch has to be even.

    So a batch whose rows weigh nothing goes first. It changes nothing.
    """
    strategy = make_strategy(k)
    with strategy.scope():
        net = make_net(params, reduction, rate)
    X, y = batches[0]
    first = np.zeros((k, *X.shape[1:])), y[:1].repeat(k)
    data = [(*first, np.zeros(k))]
    data += [(X, y, np.ones(len(X))) for X, y in batches]
    parts = [
        tf.data.Dataset.from_tensors((images(X), y, weights))
        for X, y, weights in data
    ]
    data = parts[0]
    for part in parts[1:]:
        data = data.concatenate(part)
    net.fit(data, verbose=0, shuffle=False)
    return copies(strategy, [p.value for p in net.weights])


def train_by_keras(params, batches, k):
    """The losses are summed, and the rate is divided by the rows."""
    rows = len(batches[0][0])
    return fit(params, batches, k, "sum", RATE / rows)


WAYS = {
    "variables per device": train_by_hand,
    "MirroredStrategy": train_mirrored,
    "Keras fit, sums": train_by_keras,
}
