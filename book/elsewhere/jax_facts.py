"""What else the page shows of JAX: wrong steps, refusals, the compiler."""

import jax
import jax.numpy as jnp
import numpy as np
from common import RATE, step_factor
from jax import lax
from jax.sharding import NamedSharding
from jax_step import (
    EVERYWHERE,
    ROWS,
    compiled_step,
    lenet,
    make_mesh,
    pad,
    pad_and_weigh,
    shard_map_step,
    sum_of_losses,
    train_by_compiler,
)

# -- a step for pmap that is moved to shard_map as it stands


def step_with_pmean(params, X, y):
    def loss(params):
        return sum_of_losses(params, X, y, 1.0) / len(X)

    gradients = lax.pmean(jax.grad(loss)(params), "data")
    return [p - RATE * g for p, g in zip(params, gradients)]


def mended_step(params, X, y):
    def loss(params):
        return sum_of_losses(params, X, y, 1.0) / len(X)

    mine = [lax.pcast(p, "data", to="varying") for p in params]
    gradients = lax.pmean(jax.grad(loss)(mine), "data")
    return [p - RATE * g for p, g in zip(params, gradients)]


def by_pmap(step, params, X, y, k):
    step = jax.pmap(step, "data", in_axes=(None, 0, 0))
    shards = X.reshape(k, -1, *X.shape[1:]), y.reshape(k, -1)
    return [p[0] for p in step(params, *shards)]


def by_shard_map(step, params, X, y, k):
    step = jax.shard_map(
        step,
        mesh=make_mesh(k),
        in_specs=(EVERYWHERE, ROWS, ROWS),
        out_specs=EVERYWHERE,
    )
    return jax.jit(step)(params, X, y)


def moved_steps(params, batches):
    """Return how long the steps are, in right ones, for k = 2, 3, 4."""
    X, y = (part[:252] for part in batches[0])
    right = train_by_compiler(params, [(X, y)], 1)[0]
    programs = {
        "pmap": (by_pmap, step_with_pmean),
        "moved to shard_map": (by_shard_map, step_with_pmean),
        "mended": (by_shard_map, mended_step),
    }
    return {
        name: [
            step_factor(params, run(step, params, X, y, k), right)
            for k in (2, 3, 4)
        ]
        for name, (run, step) in programs.items()
    }


# -- 257 rows on two devices


def refusals(params, batches):
    """Return what each way says to 257 rows on two devices."""
    X = batches[0][0]
    mesh = make_mesh(2)
    ways = {
        "device_put": lambda: jax.device_put(X, NamedSharding(mesh, ROWS)),
        "shard_map": lambda: jax.shard_map(
            lambda x: x, mesh=mesh, in_specs=ROWS, out_specs=ROWS
        )(X),
        "reshape for pmap": lambda: jnp.reshape(X, (2, 257 // 2, 1, 28, 28)),
        "two devices": lambda: sum(
            jax.device_put(jnp.ones(2), device) for device in jax.devices()[:2]
        ),
    }
    return {name: refusal(way) for name, way in ways.items()}


def refusal(way):
    try:
        way()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "no error"


def forgotten_weights(params, batches):
    """Return how long the step is if the row of padding counts."""
    X, y = batches[0]
    right = train_by_compiler(params, [(X, y)], 1)[0]
    X, y = pad(X, 2), pad(y, 2)
    wrong = compiled_step(params, X, y, np.ones(len(X)))
    return step_factor(params, wrong, right)


def forgotten_device_put(params, batches):
    """Return the number of devices that a step without it runs on."""
    X, y = batches[0]
    stepped = compiled_step(params, *pad_and_weigh(X, y, 2))
    return len(stepped[0].devices())


# -- what the compiler makes of it


def all_reduces(params, batches):
    """Return how many sums over devices the compiled programs have."""
    mesh = make_mesh(2)
    batch = jax.device_put(
        pad_and_weigh(*batches[0], 2), NamedSharding(mesh, ROWS)
    )
    params = jax.device_put(params, NamedSharding(mesh, EVERYWHERE))
    return {
        name: sum(
            " all-reduce(" in line or " all-reduce-start(" in line
            for line in step.lower(params, *batch)
            .compile()
            .as_text()
            .split("\n")
        )
        for name, step in {
            "written for a shard": shard_map_step(mesh),
            "written for one device": compiled_step,
        }.items()
    }


# -- accuracy, on all devices


@jax.jit
def count_right(params, X, y, weights):
    return (weights * (lenet(params, X).argmax(axis=1) == y)).sum()


def evaluate_accuracy(params, batches, mesh):
    params = jax.device_put(params, NamedSharding(mesh, EVERYWHERE))
    num_right = num_rows = 0
    for X, y in batches:
        padded = pad_and_weigh(X, y, mesh.size)
        shards = jax.device_put(padded, NamedSharding(mesh, ROWS))
        num_right += count_right(params, *shards)
        num_rows += len(y)
    return float(num_right) / num_rows


def accuracies(params, batches):
    """Return the accuracy after the three steps, by number of devices."""
    learned = train_by_compiler(params, batches, 1)[0]
    return [
        evaluate_accuracy(learned, batches, make_mesh(k)) for k in (1, 2, 3)
    ]


# -- batch norm over rows on two devices


def normalize(X):
    mean, variance = X.mean(axis=0), X.var(axis=0)
    return (X - mean) / jnp.sqrt(variance + 1e-5)


def batch_norm():
    """Return what the first of the rows 0, 1, …, 7 becomes."""
    mesh = make_mesh(2)
    X = jax.device_put(jnp.arange(8.0)[:, None], NamedSharding(mesh, ROWS))
    by_shard = jax.shard_map(
        normalize, mesh=mesh, in_specs=ROWS, out_specs=ROWS
    )
    return {
        "jit on shards": float(jax.jit(normalize)(X)[0, 0]),
        "shard_map": float(by_shard(X)[0, 0]),
    }


def facts(params, batches):
    return {
        "moved steps": moved_steps(params, batches),
        "refusals": refusals(params, batches),
        "forgotten weights": forgotten_weights(params, batches),
        "forgotten device_put": forgotten_device_put(params, batches),
        "all-reduces": all_reduces(params, batches),
        "batch norm": batch_norm(),
        "accuracies": accuracies(params, batches),
    }
