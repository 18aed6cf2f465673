"""The counts of ResNet-50 in the planner are those of a simulated step."""

import gc
from collections import defaultdict

import pytest
import torch
from recorders.trust import convolutional

import dpkit
from dpbook.planner.networks import NETWORKS
from dpkit import sim
from dpkit.machine import devices


def step(rows):
    """Return flops, traffic, number of kernels and the peak, of a step."""
    found = defaultdict(float)
    with sim.machine(num_devices=1, backing="meta", hosts="per_device"):
        ranks = devices(1, "sim")
        with torch.device("meta"):
            net = convolutional.NETWORKS["resnet50 v1.5"][0]()
        net = net.to_empty(device=ranks[0])
        trainer = convolutional._Trainer(net, ranks, True, False)
        batches = [convolutional._batch(rows, 224, ranks[0])]
        trainer.step(batches)
        torch.sim.reset_peak_memory_stats(ranks[0])
        with dpkit.sim.trace() as timeline:
            trainer.step(batches)
        found["peak"] = torch.sim.max_memory_allocated(ranks[0])
        found["parameters"] = sum(p.numel() for p in net.parameters())
        for span in timeline.spans:
            if span.kind == "compute":
                found["flops"] += span.flops or 0
                found["bytes"] += 0 if span.flops else span.num_bytes
                found["kernels"] += not span.flops
        del trainer, net, batches
    gc.collect()
    return found


@pytest.fixture(scope="module")
def two_sizes():
    return step(4), step(8)


def test_resnet50_is_counted_in_a_step(two_sizes):
    few, many = two_sizes
    net = NETWORKS["ResNet-50"]
    each = {name: (many[name] - few[name]) / 4 for name in few}
    assert net.fast + net.other == pytest.approx(each["flops"], rel=0.01)
    assert net.memory_traffic == pytest.approx(each["bytes"], rel=0.02)
    assert net.kept == pytest.approx(each["peak"], rel=0.02)
    assert net.parameters == pytest.approx(few["parameters"], rel=0.01)
    assert net.num_kernels == few["kernels"]


def test_thirteen_convolutions_of_resnet50_are_fast():
    """Of 3×3, stride 1, as many flops each; three products for each."""
    with torch.device("meta"):
        net = convolutional.NETWORKS["resnet50 v1.5"][0]()
    fast = [
        m
        for m in net.modules()
        if isinstance(m, torch.nn.Conv2d)
        and (m.kernel_size, m.stride) == ((3, 3), (1, 1))
    ]
    each = 2 * 64 * 64 * 9 * 56 * 56
    assert len(fast) == 13
    assert NETWORKS["ResNet-50"].fast == pytest.approx(3 * 13 * each, rel=0.01)
    # Between blocks 256 channels of 56×56 are the most.
    assert NETWORKS["ResNet-50"].border == pytest.approx(
        2 * 256 * 56 * 56, rel=0.01
    )
