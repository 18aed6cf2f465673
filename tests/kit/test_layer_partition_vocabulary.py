"""Tests of the split vocabulary: embedding, loss, and weights in common."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpkit import layer_partition as lp
from dpkit.clipping import clip_grad_norm
from dpkit.layer_partition.shards import even_sizes


def on_each(tensor, devices):
    return [tensor.to(d, copy=True) for d in devices]


def assert_close(found, expected):
    torch.testing.assert_close(
        found.detach().cpu(), expected.detach(), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("k", range(1, 5))
def test_embedding(get_devices, k):
    devices = get_devices(k)
    torch.manual_seed(k)
    plain = nn.Embedding(11, 3).double()
    table = lp.VocabParallelEmbedding(plain, devices)
    words = torch.randint(11, (4, 6))
    y = plain(words)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    ys = table(on_each(words, devices))
    torch.autograd.backward(ys, on_each(gradient, devices))
    for found, device in zip(ys, devices, strict=True):
        assert found.device == device
        assert_close(found, y)
    assert [len(w) for w in table.weights] == even_sizes(11, k)
    assert_close(lp.full_tensors(table)["weight"], plain.weight)
    gradients = lp.full_tensors(table, lambda p: p.grad)
    assert_close(gradients["weight"], plain.weight.grad)


def test_rows_of_others_do_not_matter(get_devices):
    """Not even if they are infinite: a product with zero would show it."""
    plain = nn.Embedding(4, 3)
    with torch.no_grad():
        plain.weight[0] = torch.inf
        plain.weight[2] = torch.nan
    devices = get_devices(2)
    table = lp.VocabParallelEmbedding(plain, devices)
    for y in table(on_each(torch.tensor([1, 3]), devices)):
        assert torch.equal(y.cpu(), plain.weight[[1, 3]])


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("k", range(1, 5))
def test_cross_entropy(get_devices, k, scale):
    devices = get_devices(k)
    torch.manual_seed(k)
    logits = scale * torch.randn(9, 11, dtype=torch.double)
    logits.requires_grad_()
    targets = torch.randint(11, (9,))
    loss = F.cross_entropy(logits, targets)
    (3 * loss).backward()
    sizes = even_sizes(11, k)
    shards = [
        shard.detach().to(d, copy=True).requires_grad_()
        for shard, d in zip(logits.split(sizes, 1), devices, strict=True)
    ]
    losses = lp.vocab_parallel_cross_entropy(shards, on_each(targets, devices))
    torch.autograd.backward([3 * x for x in losses])
    for found, device in zip(losses, devices, strict=True):
        assert found.device == device
        assert found.shape == ()
        assert_close(found, loss)
    for shard, expected in zip(
        shards, logits.grad.split(sizes, 1), strict=True
    ):
        assert_close(shard.grad, expected)


@pytest.mark.parametrize("target", [-1, 5, -100, 99])
def test_a_word_that_there_is_not_gives_nan(get_devices, target):
    devices = get_devices(2)
    shards = [torch.zeros(2, n, device=d) for n, d in zip((3, 2), devices)]
    targets = on_each(torch.tensor([0, target]), devices)
    for loss in lp.vocab_parallel_cross_entropy(shards, targets):
        assert loss.isnan()
    table = lp.VocabParallelEmbedding(nn.Embedding(5, 3), devices)
    for y in table(targets):
        assert y.cpu().isnan().any(dim=1).tolist() == [False, True]


def test_shapes_that_do_not_fit(get_devices):
    devices = get_devices(2)
    shards = [torch.zeros(2, 3, device=d) for d in devices]
    targets = on_each(torch.tensor([0, 1, 2]), devices)
    words = r"scores: \(2, 3\), labels: \(3,\)"
    with pytest.raises(ValueError, match=words):
        lp.vocab_parallel_cross_entropy(shards, targets)


class Plain(nn.Module):
    """A table, a layer, and scores by the same table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.layers = nn.Sequential(
            nn.LayerNorm(6), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6)
        )
        self.scores = nn.Linear(6, 11, bias=False)
        self.scores.weight = self.table.weight

    def loss(self, words, targets):
        return F.cross_entropy(
            self.scores(self.layers(self.table(words))), targets
        )


class Split(nn.Module):
    def __init__(self, plain, devices):
        super().__init__()
        norm, *mlp = plain.layers
        self.table = lp.VocabParallelEmbedding(plain.table, devices)
        self.layers = nn.Sequential(
            lp.Replicated(norm, devices), lp.ParallelMLP(*mlp, devices)
        )
        self.scores = lp.ColumnParallelLinear(plain.scores, devices)
        for part, rows in zip(
            self.scores.parts, self.table.weights, strict=True
        ):
            part.weight = rows

    def losses(self, words, targets):
        shards = self.scores(self.layers(self.table(words)))
        return lp.vocab_parallel_cross_entropy(shards, targets)


@pytest.mark.parametrize("k", range(1, 5))
def test_weights_in_common(get_devices, k):
    """Table and scores share shards: five steps with momentum, clipped."""
    devices = get_devices(k)
    torch.manual_seed(k)
    plain = Plain().double()
    net = Split(plain, devices)
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
        for module in (plain, net)
    ]
    norms = []
    for _ in range(5):
        words, targets = torch.randint(11, (2, 8))
        for optimizer in optimizers:
            optimizer.zero_grad()
        plain.loss(words, targets).backward()
        torch.autograd.backward(
            net.losses(on_each(words, devices), on_each(targets, devices))
        )
        norms.append(nn.utils.clip_grad_norm_(plain.parameters(), 0.3))
        found = clip_grad_norm(net.parameters(), 0.3, lp.copies(net))
        assert_close(torch.as_tensor(found), norms[-1])
        for optimizer in optimizers:
            optimizer.step()
    assert max(norms) > 0.3  # it did clip
    assert_close(lp.full_tensors(net)["table.weight"], plain.table.weight)
    full = lp.full_tensors(net.layers)
    assert_close(full["0.weight"], plain.layers[0].weight)
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        first, second = name.split(".")
        expected = plain.layers[1 + int(first)].get_parameter(second)
        assert_close(full[f"1.{name}"], expected)
    for group in lp.copies(net):
        assert len(group) == k
        for copy in group[1:]:
            assert torch.equal(copy.cpu(), group[0].cpu())
