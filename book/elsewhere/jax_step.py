"""One step of LeNet in JAX, on the rows of a batch in shards."""

import os
from functools import partial

# The processor plays four devices. JAX reads this when it is imported.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import RATE
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

jax.config.update("jax_enable_x64", True)


# -- the network


def average_pool(h):
    # The literal 0.0: from jnp.zeros(()) the sum would have no gradient.
    sums = lax.reduce_window(
        h, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
    )
    return sums / 4


def convolve(h, W, b):
    layout = ("NCHW", "OIHW", "NCHW")
    h = lax.conv_general_dilated(
        h, W, (1, 1), "VALID", dimension_numbers=layout
    )
    return h + b[:, None, None]


def lenet(params, X):
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = average_pool(jax.nn.relu(convolve(X, W1, b1)))
    h = average_pool(jax.nn.relu(convolve(h, W2, b2)))
    h = jax.nn.relu(h.reshape(len(h), -1) @ W3 + b3)
    return h @ W4 + b4


def sum_of_losses(params, X, y, weights):
    outputs = lenet(params, X)
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    return (weights * losses).sum()


def descend(params, gradients, num_rows):
    return [p - RATE * g / num_rows for p, g in zip(params, gradients)]


# -- equal shards of any batch


def pad(array, k):
    """Append rows of zeros until k divides their number."""
    rows = 0, -len(array) % k
    return np.pad(array, [rows] + [(0, 0)] * (array.ndim - 1))


def pad_and_weigh(X, y, k):
    """Return X, y and weights: 1 for a row of the batch, 0 for padding."""
    return pad(X, k), pad(y, k), pad(np.ones(len(X), X.dtype), k)


# -- from scratch: a program for each shard


@partial(jax.pmap, axis_name="data")
def pmap_step(params, X, y, weights):
    gradients = jax.grad(sum_of_losses)(params, X, y, weights)
    gradients = lax.psum(gradients, "data")
    num_rows = lax.psum(weights.sum(), "data")
    return descend(params, gradients, num_rows)


def train_by_pmap(params, batches, k):
    params = [jnp.stack([p] * k) for p in params]
    for X, y in batches:
        padded = pad_and_weigh(X, y, k)
        shards = [a.reshape(k, -1, *a.shape[1:]) for a in padded]
        params = pmap_step(params, *shards)
    return [[p[rank] for p in params] for rank in range(k)]


def make_mesh(k):
    devices = jax.devices()[:k]
    return jax.make_mesh((k,), ("data",), (AxisType.Auto,), devices=devices)


EVERYWHERE, ROWS = PartitionSpec(), PartitionSpec("data")


def shard_map_step(mesh):
    @partial(
        jax.shard_map, mesh=mesh, out_specs=EVERYWHERE,
        in_specs=(EVERYWHERE, ROWS, ROWS, ROWS),
    )  # fmt: skip
    def step(params, X, y, weights):
        mine = [lax.pcast(p, "data", to="varying") for p in params]
        gradients = jax.grad(sum_of_losses)(mine, X, y, weights)
        gradients = lax.psum(gradients, "data")
        num_rows = lax.psum(weights.sum(), "data")
        return descend(params, gradients, num_rows)

    return jax.jit(step)


# -- the program of one device, on arrays in shards


@jax.jit
def compiled_step(params, X, y, weights):
    gradients = jax.grad(sum_of_losses)(params, X, y, weights)
    return descend(params, gradients, weights.sum())


optimizer = optax.sgd(RATE)


@jax.jit
def optax_step(params, X, y, weights):
    def loss(params):
        return sum_of_losses(params, X, y, weights) / weights.sum()

    updates, _ = optimizer.update(
        jax.grad(loss)(params), optimizer.init(params)
    )
    return optax.apply_updates(params, updates)


def train_on_mesh(step, params, batches, mesh):
    k = mesh.size
    params = jax.device_put(params, NamedSharding(mesh, EVERYWHERE))
    for X, y in batches:
        shards = pad_and_weigh(X, y, k)
        shards = jax.device_put(shards, NamedSharding(mesh, ROWS))
        params = step(params, *shards)
    return replicas_of(params)


def replicas_of(params):
    """Return what each device holds."""
    shards = [p.addressable_shards for p in params]
    return [[shard.data for shard in shards] for shards in zip(*shards)]


def train_by_shard_map(params, batches, k):
    mesh = make_mesh(k)
    return train_on_mesh(shard_map_step(mesh), params, batches, mesh)


def train_by_compiler(params, batches, k):
    return train_on_mesh(compiled_step, params, batches, make_mesh(k))


def train_by_optax(params, batches, k):
    return train_on_mesh(optax_step, params, batches, make_mesh(k))


WAYS = {
    "pmap": train_by_pmap,
    "shard_map": train_by_shard_map,
    "jit on shards": train_by_compiler,
    "jit on shards, optax": train_by_optax,
}
