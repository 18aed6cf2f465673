"""PyTorch's engines on real processes give the step of one device.

They are the oracle for dpkit's own ways to split; here plain PyTorch in one
process is theirs.
"""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

import dpkit
from dpbook.layer_partitioning.engine import tensor_parallel_step
from dpbook.network_partitioning.engine import engine_step
from dpkit.layer_partition import ParallelMLP, full_tensors
from dpkit.processes import launch
from tests.weekly import weekly

OURS = {
    ScheduleGPipe: "gpipe",
    Schedule1F1B: "1f1b",
    ScheduleInterleaved1F1B: "interleaved",
    ScheduleInterleavedZeroBubble: "zb-h1",
}
# (schedule, stages a rank, micro-batches)
PIPELINES = [
    (ScheduleGPipe, 1, 1),
    (ScheduleGPipe, 1, 6),
    (Schedule1F1B, 1, 6),
    (ScheduleInterleaved1F1B, 2, 4),
    (ScheduleInterleaved1F1B, 3, 8),
    (ScheduleInterleavedZeroBubble, 1, 8),
    (ScheduleInterleavedZeroBubble, 2, 4),
]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def mlp(widths):
    """Return linear layers of these widths with an activation between."""
    layers = [nn.Linear(n, m) for n, m in pairwise(widths)]
    between = [module for layer in layers for module in (layer, nn.Tanh())]
    return nn.Sequential(*between[:-1]).double()


def pipeline_of(num_stages):
    """Return a model of as many stages, whose widths differ."""
    widths = [5 + i % 3 for i in range(num_stages)] + [3]
    stages = [mlp(pair) for pair in pairwise(widths)]
    return nn.Sequential(*stages)


def on_one_device(model, X, y, loss_fn):
    model = copy.deepcopy(model)
    loss = loss_fn(model(X), y)
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters()}


def largest_difference(step, reference):
    """Compare the loss and every gradient, none missing and none too many."""
    loss, gradients = step
    reference_loss, reference_gradients = reference
    assert gradients.keys() == reference_gradients.keys()
    differences = [(loss - reference_loss).abs()]
    for name, gradient in gradients.items():
        assert gradient.shape == reference_gradients[name].shape
        assert gradient.abs().max() > 1e-4  # no comparison of zeros
        differences.append((gradient - reference_gradients[name]).abs().max())
    return max(map(float, differences))


def joined(steps):
    """Return the one loss, and the gradients of all ranks' stages."""
    (loss,) = [loss for loss, _ in steps if loss is not None]
    names = [name for _, gradients in steps for name in gradients]
    assert len(names) == len(set(names))
    return loss, {n: g for _, gradients in steps for n, g in gradients.items()}


def run_pipelines(cases, X, y, loss_fn):
    """On one rank: a step of each pipeline, one after the other."""
    return [
        engine_step(list(model), X, y, loss_fn, schedule, num_micro_batches)
        for model, schedule, num_micro_batches in cases
    ]


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, weekly(4)])
def test_pipelines(world_size):
    X, y = torch.randn(24, 5).double(), torch.randint(3, (24,))
    loss_fn = nn.CrossEntropyLoss()
    cases = [
        (pipeline_of(per_rank * world_size), schedule, num_micro_batches)
        for schedule, per_rank, num_micro_batches in PIPELINES
    ]
    results = launch(
        run_pipelines, world_size, cases, X, y, loss_fn, backend="gloo"
    )
    for (model, schedule, m), steps in zip(cases, zip(*results), strict=True):
        assert all(len(gradients) for _, gradients in steps)
        reference = on_one_device(model, X, y, loss_fn)
        assert largest_difference(joined(steps), reference) <= 1e-10
        ours = by_our_pipeline(model, X, y, loss_fn, schedule, m, world_size)
        assert largest_difference(joined(steps), ours) <= 1e-10


def by_our_pipeline(model, X, y, loss_fn, schedule, m, world_size):
    """The same step by dpkit.Pipeline, on simulated devices.

    Our ZB-H1 has one stage a device: with more there are more devices.
    """
    stages = [nn.Sequential(stage) for stage in copy.deepcopy(model)]
    name = OURS[schedule]
    k = world_size if name == "interleaved" else len(stages)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(k, "sim"), name, m)
    loss = pipeline.forward_backward(X, y, loss_fn)
    names = [name for name, _ in model.named_parameters()]
    gradients = [p.grad.cpu() for p in pipeline.parameters()]
    return loss.cpu(), dict(zip(names, gradients, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 4])
def test_split_layers(world_size):
    X, y = torch.randn(3, 5).double(), torch.randn(3, 7).double()
    layers, loss_fn = mlp([5, 12, 7]), nn.MSELoss()
    steps = launch(
        tensor_parallel_step, world_size, layers, X, y, loss_fn, backend="gloo"
    )
    reference = on_one_device(layers, X, y, loss_fn)
    ours = by_our_split_layers(layers, X, y, loss_fn, world_size)
    assert len(steps) == world_size
    for step in steps:
        assert largest_difference(step, reference) <= 1e-10
        assert largest_difference(step, ours) <= 1e-10


def by_our_split_layers(layers, X, y, loss_fn, k):
    """The same step by dpkit's ParallelMLP, on simulated devices."""
    devices = dpkit.devices(k, "sim")
    split = ParallelMLP(*layers, devices)
    outputs = split([X.to(device) for device in devices])
    losses = [loss_fn(out, y.to(out.device)) for out in outputs]
    torch.autograd.backward(losses)
    gradients = full_tensors(split, lambda p: p.grad)
    return losses[-1].detach().cpu(), gradients


@pytest.mark.slow
def test_the_engine_needs_micro_batches_of_one_size():
    """What the docstring says: their number must divide the batch."""
    X, y = torch.randn(7, 5), torch.randn(7, 3)
    with pytest.raises(RuntimeError, match="a rank raised an exception"):
        launch(
            engine_step,
            2,
            list(pipeline_of(2).float()), X, y, nn.MSELoss(), ScheduleGPipe, 2,
            backend="gloo",
        )  # fmt: skip
