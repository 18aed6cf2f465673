"""Whatever is in shards, Adam takes the steps of one device."""

from functools import partial

import pytest
import torch

import dpkit
from dpkit.lab.cheat_sheet.sharded_adam import ShardedAdam
from dpkit.lab.common.traffic import Traffic

SIZE, RANKS = 12, 3
VALUES = torch.linspace(-1, 1, SIZE)


def gradient(rank, weights):
    """Return what leads the weights of a rank to a place of its own."""
    generator = torch.Generator().manual_seed(rank)
    target = torch.randn(SIZE, generator=generator).to(weights)
    return weights - target


GRADIENTS = [partial(gradient, rank) for rank in range(RANKS)]


def trained(stage, dtype, steps=5):
    devices = dpkit.devices(RANKS, "sim")
    adam = ShardedAdam(VALUES, devices, stage, lr=0.1, dtype=dtype)
    for _ in range(steps):
        adam.step(GRADIENTS)
    return adam


def on_one_device(steps=5):
    weights = VALUES.clone()
    adam = torch.optim.Adam([weights], lr=0.1)
    for _ in range(steps):
        weights.grad = sum(f(weights) for f in GRADIENTS) / RANKS
        adam.step()
    return weights


@pytest.mark.parametrize("stage", range(4))
def test_every_replica_is_that_of_one_device(stage):
    found = trained(stage, torch.float32).whole()
    assert len(found) == RANKS
    for rank, weights in enumerate(found):
        assert weights.device.index == rank
        torch.testing.assert_close(weights.cpu(), on_one_device())


def test_in_16_bits_all_stages_agree_to_the_bit():
    first, *others = [
        [weights.cpu() for weights in trained(s, torch.bfloat16).whole()]
        for s in range(4)
    ]
    for found in [first, *others]:
        assert all(torch.equal(first[0], weights) for weights in found)
    away = (first[0].float() - on_one_device()).abs().max()
    assert 0 < away < 0.02


@pytest.mark.parametrize(
    ("stage", "kept", "sent"),
    [(0, 16, 2), (1, 4 + 4, 2), (2, 2 + 14 / 3, 2), (3, 16 / 3, 3)],
)
def test_what_each_device_keeps_and_sends(stage, kept, sent):
    devices = dpkit.devices(RANKS, "sim")
    before = [torch.sim.memory_allocated(d) for d in devices]
    adam = trained(stage, torch.bfloat16, steps=1)
    with Traffic() as traffic:
        adam.step(GRADIENTS)
    for device, start in zip(devices, before):
        held = torch.sim.memory_allocated(device) - start
        assert held == pytest.approx(kept * SIZE)
        numbers = traffic.sent[device] / 2
        assert numbers == pytest.approx(sent * SIZE * (RANKS - 1) / RANKS)


@pytest.mark.parametrize(("size", "stage"), [(10, 0), (12, 4)])
def test_shards_are_equal_and_the_stage_is_known(size, stage):
    with pytest.raises(ValueError, match="equal shards and a stage"):
        ShardedAdam(torch.ones(size), dpkit.devices(RANKS, "sim"), stage)
