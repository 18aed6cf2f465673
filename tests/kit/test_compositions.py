"""Two ways at once are still the network on one device."""

from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.layer_partition import (
    LayerParallel,
    ParallelMLP,
    Replicated,
    copies,
    full_tensors,
)

WIDTH = 6


def network():
    torch.manual_seed(0)
    layers = []
    for _ in range(4):
        layers += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 7), nn.Tanh()]
        layers += [nn.Linear(7, WIDTH)]
    return nn.Sequential(*layers).double()


def split(layers, devices):
    """Split the layers of some blocks over devices."""
    parts = []
    for norm, first, activation, second in zip(*[iter(layers)] * 4):
        parts.append(Replicated(norm, devices))
        parts.append(ParallelMLP(first, activation, second, devices))
    return nn.Sequential(*parts)


def batches(num_steps=2, size=11):
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_steps):
        yield torch.randn(
            2, size, WIDTH, generator=generator, dtype=torch.double
        )


def train(params, step, clip):
    optimizer = torch.optim.SGD(params, lr=0.5, momentum=0.9)
    norms = []
    for X, y in batches():
        optimizer.zero_grad()
        step(X, y)
        norms.append(clip().item())
        optimizer.step()
    return norms


def on_one():
    net = network()
    params = list(net.parameters())
    norms = train(
        params,
        lambda X, y: F.mse_loss(net(X), y).backward(),
        lambda: nn.utils.clip_grad_norm_(params, 0.3),
    )
    return net, norms


def values(net):
    """The parameters and gradients of the network on one device."""
    params = list(net.parameters())
    return [p.detach().cpu() for p in params] + [p.grad.cpu() for p in params]


def joined(parts):
    """The same of split stages, joined; replicas have to be equal."""
    for part in parts:
        for group in copies(part):
            for p in group:
                assert torch.equal(p.cpu(), group[0].cpu())
    found = [full_tensors(part) for part in parts]
    grads = [full_tensors(part, lambda p: p.grad) for part in parts]
    return [t for full in [*found, *grads] for t in full.values()]


def largest_difference(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize(
    ("schedule", "p", "k"), [("gpipe", 2, 3), ("1f1b", 4, 2), ("zb-h1", 2, 2)]
)
def test_a_pipeline_of_layer_parallel_stages(schedule, p, k):
    """p stages, each split over k devices."""
    devices = dpkit.devices(p * k, "sim")
    groups = [devices[i * k : (i + 1) * k] for i in range(p)]
    pieces = dpkit.split_layers(network(), p, sizes=[16 // p] * p)
    stages = [
        LayerParallel(split(piece, group), group)
        for piece, group in zip(pieces, groups)
    ]
    firsts = [group[0] for group in groups]
    pipeline = dpkit.Pipeline(stages, firsts, schedule, 4)
    params = list(pipeline.parameters())
    groups_of_copies = [g for stage in stages for g in copies(stage)]
    norms = train(
        params,
        lambda X, y: pipeline.forward_backward(X, y, F.mse_loss),
        lambda: dpkit.clip_grad_norm(params, 0.3, groups_of_copies),
    )
    net, expected = on_one()
    assert norms == pytest.approx(expected, abs=1e-10)
    found = joined([stage.module for stage in pipeline.stages])
    assert largest_difference(found, values(net)) < 1e-10
    assert {q.device for q in params} == set(devices)


@pytest.mark.parametrize(
    ("schedule", "p", "k"), [("gpipe", 2, 3), ("1f1b", 3, 2), ("zb-h1", 2, 2)]
)
def test_data_parallel_pipelines(schedule, p, k):
    """k pipelines of p stages, each with some of the rows."""
    devices = dpkit.devices(p * k, "sim")
    pipelines = [
        dpkit.Pipeline(
            dpkit.split_layers(network(), p), devices[i * p : (i + 1) * p],
            schedule, 3,
        )
        for i in range(k)
    ]  # fmt: skip
    params = [q for pipeline in pipelines for q in pipeline.parameters()]
    same = list(zip(*(pipeline.parameters() for pipeline in pipelines)))

    def step(X, y):
        shards = zip(X.tensor_split(k), y.tensor_split(k))
        for pipeline, (X_part, y_part) in zip(pipelines, shards):
            pipeline.forward_backward(X_part, y_part, F.mse_loss)
            for q in pipeline.parameters():
                q.grad *= len(X_part) / len(X)
        for group in same:
            dpkit.allreduce([q.grad for q in group])

    norms = train(
        params, step, lambda: dpkit.clip_grad_norm(params, 0.3, same)
    )
    net, expected = on_one()
    assert norms == pytest.approx(expected, abs=1e-10)
    for pipeline in pipelines:
        assert largest_difference(values(pipeline), values(net)) < 1e-10


@pytest.mark.parametrize("k", [3])
def test_data_parallel_split_layers(k):
    """k replicas of the network, each split over two devices."""
    devices = dpkit.devices(2 * k, "sim")
    groups = [devices[2 * i : 2 * i + 2] for i in range(k)]
    nets = [LayerParallel(split(network(), g), g) for g in groups]
    params = [q for net in nets for q in net.parameters()]
    same = list(zip(*(net.parameters() for net in nets)))
    once = norm_groups(nets)

    def step(X, y):
        shards = zip(X.tensor_split(k), y.tensor_split(k))
        for net, (X_part, y_part) in zip(nets, shards):
            device = net.devices[0]
            loss = F.mse_loss(net(X_part.to(device)), y_part.to(device))
            (loss * len(X_part) / len(X)).backward()
        for group in same:
            dpkit.allreduce([q.grad for q in group])

    norms = train(
        params, step, lambda: dpkit.clip_grad_norm(params, 0.3, once)
    )
    net, expected = on_one()
    assert norms == pytest.approx(expected, abs=1e-10)
    for split_net in nets:
        found = joined([split_net.module])
        assert largest_difference(found, values(net)) < 1e-10


def norm_groups(nets):
    """Copies inside a network, and what stands for it in the others."""
    inside = [copies(net) for net in nets]
    whole = [list(chain.from_iterable(g)) for g in zip(*inside)]
    held = {id(q) for group in whole for q in group}
    across = zip(*(net.parameters() for net in nets))
    return whole + [list(g) for g in across if id(g[0]) not in held]
