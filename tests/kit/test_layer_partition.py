"""A layer split over k devices is the layer on one: outputs and gradients.

The oracle is the plain layer of PyTorch on the CPU, in float64. All shards
and all replicas are compared, never rank 0 alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpkit import layer_partition as lp
from dpkit.clipping import clip_grad_norm
from dpkit.layer_partition.shards import even_sizes


class Case(NamedTuple):
    """A layer, how it is split, and along which dimension its tensors are.

    None: they are replicas.
    """

    make: Callable[[], nn.Module]
    split: Callable
    shape: tuple[int, ...]
    input_dim: int | None = None
    output_dim: int | None = None


class PlainResidual(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        return x + self.branch(x)


class PlainAttention(nn.MultiheadAttention):
    causal = False

    def forward(self, x):
        mask = None
        if self.causal:
            ones = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
            mask = ones.triu(1)
        return super().forward(
            x, x, x, need_weights=False, attn_mask=mask, is_causal=self.causal
        )[0]


class CausalAttention(PlainAttention):
    causal = True


def split_attention(attention, devices):
    return lp.HeadParallelAttention(attention, devices, attention.causal)


def plain_mlp():
    return nn.Sequential(nn.Linear(5, 11), nn.GELU(), nn.Linear(11, 3))


def split_mlp(mlp, devices):
    return lp.ParallelMLP(*mlp, devices)


def plain_block():
    attention = CausalAttention(12, 4, batch_first=True)
    mlp = nn.Sequential(nn.Linear(12, 18), nn.GELU(), nn.Linear(18, 12))
    return nn.Sequential(
        PlainResidual(nn.Sequential(nn.LayerNorm(12), attention)),
        PlainResidual(nn.Sequential(nn.LayerNorm(12), mlp)),
        nn.LayerNorm(12),
    )


def split_block(block, devices):
    (norm1, attention), (norm2, mlp) = block[0].branch, block[1].branch
    return nn.Sequential(
        lp.Residual(
            nn.Sequential(
                lp.Replicated(norm1, devices),
                split_attention(attention, devices),
            )
        ),
        lp.Residual(
            nn.Sequential(
                lp.Replicated(norm2, devices), split_mlp(mlp, devices)
            )
        ),
        lp.Replicated(block[2], devices),
    )


def split_and_join(linear, devices):
    column = lp.ColumnParallelLinear(linear[0], devices)
    return nn.Sequential(column, lp.Joined(dim=-1))


def conv(*sizes, **options):
    return lambda: nn.Conv2d(*sizes, kernel_size=3, **options)


def on_replicas(conv, devices):
    return lp.ChannelParallelConv2d(conv, devices, gather_input=False)


SHAPE = (2, 6, 5, 7)
CASES = {
    "column": Case(
        lambda: nn.Linear(5, 7), lp.ColumnParallelLinear, (3, 5), None, -1
    ),
    "column without bias": Case(
        lambda: nn.Linear(5, 7, bias=False),
        lp.ColumnParallelLinear,
        (2, 3, 5),
        None,
        -1,
    ),
    "column, joined": Case(
        lambda: nn.Sequential(nn.Linear(5, 7)), split_and_join, (3, 5)
    ),
    "row": Case(
        lambda: nn.Linear(7, 4), lp.RowParallelLinear, (3, 7), -1, None
    ),
    "row without bias": Case(
        lambda: nn.Linear(7, 4, bias=False),
        lp.RowParallelLinear,
        (2, 3, 7),
        -1,
        None,
    ),
    "mlp": Case(plain_mlp, split_mlp, (6, 5)),
    "heads": Case(
        lambda: PlainAttention(20, 5, batch_first=True),
        split_attention,
        (2, 3, 20),
    ),
    "causal heads without bias": Case(
        lambda: CausalAttention(12, 4, bias=False, batch_first=True),
        split_attention,
        (2, 5, 12),
    ),
    "transformer block": Case(plain_block, split_block, (2, 5, 12)),
    "gathered channels": Case(
        conv(6, 7, stride=2), lp.ChannelParallelConv2d, SHAPE, 1, 1
    ),
    "reflected edges": Case(
        conv(6, 5, padding=1, padding_mode="reflect", bias=False),
        lp.ChannelParallelConv2d,
        SHAPE,
        1,
        1,
    ),
    "channels, dilated": Case(
        conv(6, 7, dilation=2, padding="same"),
        lp.ChannelParallelConv2d,
        SHAPE,
        1,
        1,
    ),
    "channels of replicas": Case(conv(6, 7), on_replicas, SHAPE, None, 1),
    "layer norm": Case(lambda: nn.LayerNorm(5), lp.Replicated, (3, 5)),
}


def parts(tensor, dim, devices):
    """Return the tensor as replicas or as shards, on its devices."""
    if dim is None:
        return [tensor.to(d, copy=True) for d in devices]
    sizes = even_sizes(tensor.shape[dim], len(devices))
    pieces = tensor.split(sizes, dim)
    return [p.to(d, copy=True) for p, d in zip(pieces, devices, strict=True)]


def assert_parts(found, expected, dim, devices):
    """Compare all replicas, or all shards, on their devices."""
    assert len(found) == len(devices)
    for tensor, device, part in zip(
        found, devices, parts(expected, dim, devices), strict=True
    ):
        assert tensor.device == device
        assert tensor.shape == part.shape
        torch.testing.assert_close(tensor, part, rtol=0, atol=1e-10)


def assert_same_parameters(net, plain, pick):
    """Compare full tensors, and each replica with the others."""
    full = lp.full_tensors(net, pick)
    expected = {n: pick(p) for n, p in plain.named_parameters()}
    assert full.keys() == expected.keys()
    for name, tensor in full.items():
        torch.testing.assert_close(
            tensor, expected[name].detach(), rtol=0, atol=1e-10
        )
    for group in lp.copies(net):
        for copy in group[1:]:
            assert torch.equal(pick(copy).cpu(), pick(group[0]).cpu())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_devices_give_what_one_gives(get_devices, case, k):
    devices = get_devices(k)
    torch.manual_seed(k)
    plain = case.make().double()
    net = case.split(plain, devices)
    x = torch.randn(case.shape, dtype=torch.double, requires_grad=True)
    y = plain(x)
    gradient = torch.randn_like(y)
    y.backward(gradient)

    xs = parts(x.detach(), case.input_dim, devices)
    for part in xs:
        part.requires_grad_()
    ys = net(xs)
    assert_parts(ys, y.detach(), case.output_dim, devices)
    torch.autograd.backward(ys, parts(gradient, case.output_dim, devices))
    assert_parts([x.grad for x in xs], x.grad, case.input_dim, devices)
    assert_same_parameters(net, plain, lambda p: p)
    assert_same_parameters(net, plain, lambda p: p.grad)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_parameters_lie_where_they_should(case):
    """Each on its device, none twice, and no more than there were."""
    devices = [torch.device("meta"), torch.device("cpu")]
    plain = case.make()
    net = case.split(plain, devices)
    placed = {p.device for p in net.parameters()}
    assert placed == set(devices)
    extra = sum(g[0].numel() for g in lp.copies(net))
    total = sum(p.numel() for p in net.parameters())
    assert total == sum(p.numel() for p in plain.parameters()) + extra


@pytest.mark.parametrize(("groups", "k"), [(2, 1), (2, 2), (4, 2)])
def test_towers_are_a_convolution_with_groups(get_devices, groups, k):
    case = Case(conv(12, 8, groups=groups), on_replicas, (2, 12, 5, 6), 1, 1)
    test_k_devices_give_what_one_gives(get_devices, case, k)


@pytest.mark.parametrize("k", [1, 3])
def test_frozen_parameters_stay_frozen(get_devices, k):
    plain = plain_mlp()
    plain[0].weight.requires_grad_(False)
    net = lp.ParallelMLP(*plain, get_devices(k))
    trained = [p.requires_grad for p in net[0].parts[k - 1].parameters()]
    assert trained == [False, True]
    assert all(p.requires_grad for p in net[2].parameters())


def test_the_given_layers_stay_as_they_are(get_devices):
    plain = plain_block()
    before = {n: p.clone() for n, p in plain.named_parameters()}
    net = split_block(plain, get_devices(2))
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    for name, p in plain.named_parameters():
        assert torch.equal(p, before[name])


def test_splitting_draws_no_random_number(get_devices):
    plain, devices = plain_block(), get_devices(2)
    plain_conv = nn.Conv2d(2, 3, 3)
    before = torch.get_rng_state()
    split_block(plain, devices)
    lp.ChannelParallelConv2d(plain_conv, devices)
    assert torch.equal(torch.get_rng_state(), before)


def test_even_sizes_are_those_of_tensor_split():
    for length in range(1, 12):
        for k in range(1, 6):
            parts = torch.arange(length).tensor_split(k)
            assert even_sizes(length, k) == [len(p) for p in parts]


# Several steps: what replicas have in common they must keep.

WHOLE = {
    name: case
    for name, case in CASES.items()
    if case.input_dim is None and case.output_dim is None
}


def train(plain, net, case, devices, backward):
    """Train both for three steps, with momentum and clipping."""
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
        for module in (plain, net)
    ]
    for _ in range(3):
        x = torch.randn(case.shape, dtype=torch.double)
        y = plain(x)
        wanted = torch.randn_like(y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.mse_loss(y, wanted).backward()
        backward(net, x, wanted)
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        assert norm > 0.1  # it does clip
        found = clip_grad_norm(net.parameters(), 0.1, lp.copies(net))
        assert abs(float(found) - float(norm)) < 1e-10
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("k", [1, 3])
def test_k_devices_train_as_one(get_devices, case, k):
    """Each rank has a loss of its own, and backward starts from all."""
    devices = get_devices(k)
    torch.manual_seed(k)
    plain = case.make().double()
    net = case.split(plain, devices)

    def backward(net, x, wanted):
        ys = net(parts(x, None, devices))
        targets = parts(wanted, None, devices)
        torch.autograd.backward(list(map(F.mse_loss, ys, targets)))

    train(plain, net, case, devices, backward)
    assert_same_parameters(net, plain, lambda p: p)


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("k", [1, 3])
def test_wrapped_it_trains_like_any_module(get_devices, case, k):
    """One tensor in, one out, one loss."""
    devices = get_devices(k)
    torch.manual_seed(k)
    plain = case.make().double()
    net = lp.LayerParallel(case.split(plain, devices), devices)

    def backward(net, x, wanted):
        y = net(x.to(devices[0]))
        assert y.device == devices[0]
        F.mse_loss(y, wanted.to(devices[0])).backward()

    train(plain, net, case, devices, backward)
    assert_same_parameters(net.module, plain, lambda p: p)


@pytest.mark.parametrize("k", [1, 3])
def test_two_wrapped_blocks_one_after_another(get_devices, k):
    """As the stages of a pipeline: the gradient passes through both."""
    devices = get_devices(k)
    torch.manual_seed(k)
    blocks = [plain_block().double() for _ in range(2)]
    nets = [
        lp.LayerParallel(split_block(block, ranks), ranks)
        for block, ranks in zip(blocks, (devices, devices[::-1]), strict=True)
    ]
    x = torch.randn(2, 5, 12, dtype=torch.double, requires_grad=True)
    y = blocks[1](blocks[0](x))
    gradient = torch.randn_like(y)
    y.backward(gradient)
    own = x.detach().to(devices[0], copy=True).requires_grad_()
    found = nets[1](nets[0](own))
    assert found.device == devices[-1]
    found.backward(gradient.to(devices[-1]))
    for tensor, expected in ((found, y), (own.grad, x.grad)):
        torch.testing.assert_close(
            tensor.detach().cpu(), expected.detach(), rtol=0, atol=1e-10
        )
    for net, block in zip(nets, blocks, strict=True):
        assert_same_parameters(net.module, block, lambda p: p.grad)
