"""A pipeline whose stages are split: two ways of splitting, composed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit import layer_partition as lp
from dpkit.clipping import clip_grad_norm
from dpkit.network_partition import Pipeline


def plain_stage():
    return nn.Sequential(
        nn.LayerNorm(6), nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 6)
    ).double()


def split_stage(plain, devices):
    norm, first, activation, second = plain
    return lp.LayerParallel(
        nn.Sequential(
            lp.Replicated(norm, devices),
            lp.ParallelMLP(first, activation, second, devices),
        ),
        devices,
    )


@pytest.mark.parametrize(
    ("schedule", "num_micro_batches", "k"),
    [("naive", 1, 2), ("1f1b", 3, 1), ("1f1b", 3, 3), ("zb-h1", 3, 2)],
)
def test_a_pipeline_of_split_stages(k, num_micro_batches, schedule):
    """Two stages of k devices each: three steps, with momentum, clipped."""
    devices = dpkit.devices(2 * k, kind="sim")
    torch.manual_seed(k)
    plain = nn.Sequential(plain_stage(), plain_stage())
    groups = devices[:k], devices[k:]
    stages = [split_stage(p, g) for p, g in zip(plain, groups, strict=True)]
    pipeline = Pipeline(
        stages, [g[0] for g in groups], schedule, num_micro_batches
    )
    for stage, group in zip(pipeline.stages, groups, strict=True):
        assert {p.device for p in stage.parameters()} == set(group)
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
        for module in (plain, pipeline)
    ]
    for _ in range(3):
        X, Y = torch.randn(2, 7, 6, dtype=torch.double)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.mse_loss(plain(X), Y)
        loss.backward()
        found = pipeline.forward_backward(X, Y, F.mse_loss)
        assert abs(found.item() - loss.item()) < 1e-10
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        assert norm > 0.1  # it does clip
        copies = lp.copies(pipeline)
        found = clip_grad_norm(pipeline.parameters(), 0.1, copies)
        assert abs(float(found) - float(norm)) < 1e-10
        for optimizer in optimizers:
            optimizer.step()
    expected = list(plain.parameters())
    full = list(lp.full_tensors(pipeline.stages).values())
    for tensor, parameter in zip(full, expected, strict=True):
        torch.testing.assert_close(
            tensor, parameter.detach(), rtol=0, atol=1e-10
        )
    for group in lp.copies(pipeline):
        for copy in group[1:]:
            assert torch.equal(copy.cpu(), group[0].cpu())
