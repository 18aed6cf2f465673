"""What else the page shows of TensorFlow and Keras."""

import keras
import numpy as np
import tensorflow as tf
from common import RATE, step_factor
from tensorflow_step import (
    fit,
    images,
    make_net,
    make_strategy,
    train_by_hand,
)

# -- Keras as it comes: each device takes the mean of its rows


def keras_steps(params, batches):
    """Return how long the steps of fit() are, in right ones."""
    X, y = batches[0]
    factors = {}
    for rows, k in ((1, 2), (2, 3), (6, 4), (252, 3)):
        batch = X[:rows], y[:rows]
        right = train_by_hand(params, [batch], 1)[0]
        for name, reduction, rate in (
            ("mean", "sum_over_batch_size", RATE),
            ("sum", "sum", RATE / rows),
        ):
            stepped = fit(params, [batch], k, reduction, rate)[0]
            factors[f"{name}: {rows} rows, {k} devices"] = step_factor(
                params, stepped, right
            )
    return factors


def ragged_first_batch(params, batches):
    """Return what fit() says if its first batch is 257 rows on two devices."""
    X, y = batches[0]
    with make_strategy(2).scope():
        net = make_net(params, "sum_over_batch_size", RATE)
    data = tf.data.Dataset.from_tensors((images(X), y))
    try:
        net.fit(data, verbose=0, shuffle=False)
    except Exception as error:
        return type(error).__name__
    return "no error"


# -- how a batch is cut


def dataset_shards():
    """Return the rows per device that a distributed dataset gives."""
    rows = {}
    for num_rows, k in ((257, 5), (6, 4), (2, 3)):
        strategy = make_strategy(k)
        data = tf.data.Dataset.range(num_rows).batch(num_rows)
        shards = next(iter(strategy.experimental_distribute_dataset(data)))
        local = strategy.experimental_local_results(shards)
        rows[f"{num_rows} on {k}"] = [len(shard) for shard in local]
    return rows


def split_of_257():
    try:
        tf.split(tf.zeros(257), 2)
    except tf.errors.InvalidArgumentError as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    return "no error"


# -- strictness, and batch norm over rows on two devices


def sum_over_devices():
    """Return where a sum of tensors of two devices lies."""
    parts = []
    for rank in (0, 1):
        with tf.device(f"CPU:{rank}"):
            parts.append(tf.ones(2))
    return (parts[0] + parts[1]).device.rpartition("device:")[2]


def batch_norm(synchronized):
    """Return what the first of the rows 0, 1, …, 7 becomes."""
    strategy = make_strategy(2)
    with strategy.scope():
        layer = keras.layers.BatchNormalization(
            epsilon=1e-5, synchronized=synchronized
        )
        layer.build((None, 1))
    rows = np.arange(8.0).reshape(2, 4, 1)

    @tf.function
    def normalize():
        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        return layer(tf.gather(tf.constant(rows), rank), training=True)

    shards = strategy.experimental_local_results(strategy.run(normalize))
    return float(shards[0][0, 0])


def facts(params, batches):
    return {
        "Keras steps": keras_steps(params, batches),
        "ragged first batch": ragged_first_batch(params, batches),
        "dataset shards": dataset_shards(),
        "split of 257": split_of_257(),
        "sum over devices": sum_over_devices(),
        "batch norm": {
            "Keras": batch_norm(False),
            "Keras, synchronized": batch_norm(True),
        },
    }
