"""Tests of dpkit.sim.kernels.fast_path: transformers in evaluation."""

import copy

import pytest
import torch
from torch import nn

import dpkit

SHAPE = (3, 10, 32)  # sequences, positions, width: 4 heads of 8
MASKS = {
    "none": (),
    "positions": ("src_mask",),
    "padding": ("src_key_padding_mask",),
    "both": ("src_mask", "src_key_padding_mask"),
}
modes = pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])


@pytest.fixture
def zero():
    (device,) = dpkit.devices(1, kind="sim")
    return device


def masks(names):
    """Return masks that hide each position from some other, and padding."""
    found = {
        "src_mask": torch.ones(10, 10).triu(4).bool(),
        "src_key_padding_mask": torch.arange(10).expand(3, 10) > 7,
    }
    return {name: found[name] for name in names}


def moved(tensors, device):
    return {name: x.to(device) for name, x in tensors.items()}


def on_both(net, x, masks, mode, device, **options):
    """Return what comes out on the CPU and on a device."""
    there = copy.deepcopy(net).to(device)
    y = x.to(device)
    with mode():
        out = there(y, **moved(masks, device), **options)
        return net(x, **masks, **options), out


@modes
@pytest.mark.parametrize("names", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_layer_has_the_values_of_the_cpu(
    activation, norm_first, names, mode, zero
):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, 0.5, activation, batch_first=True, norm_first=norm_first
    ).eval()
    given = masks(names)
    on_cpu, here = on_both(layer, torch.randn(SHAPE), given, mode, zero)
    close = {"rtol": 0, "atol": 0 if names else 2e-6}
    torch.testing.assert_close(here.cpu(), on_cpu, **close)


class Itself(nn.MultiheadAttention):
    """Attention of a sequence to itself."""

    def forward(self, x, **options):
        return super().forward(x, x, x, **options)


@modes
@pytest.mark.parametrize("mask", [None, "attn_mask", "key_padding_mask"])
@pytest.mark.parametrize("weights", ["none", "each", "mean"])
def test_attention_has_the_values_of_the_cpu(weights, mask, mode, zero):
    torch.manual_seed(0)
    net = Itself(32, 4, batch_first=True).eval()
    positions, padding = masks(MASKS["both"]).values()
    given = {"attn_mask": positions, "key_padding_mask": padding}
    given = {name: x for name, x in given.items() if name == mask}
    options = {
        "need_weights": weights != "none",
        "average_attn_weights": weights == "mean",
    }
    (y, p), (out, found) = on_both(
        net, torch.randn(SHAPE), given, mode, zero, **options
    )
    fused = weights == "none" and mask is None
    close = {"rtol": 0, "atol": 2e-6 if fused else 0}
    torch.testing.assert_close(out.cpu(), y, **close)
    assert (found is None) is (p is None) is (weights == "none")
    if p is not None:
        assert torch.equal(found.cpu(), p)


@pytest.mark.parametrize("shape", [(0, 10, 32), (3, 0, 32)])
def test_nothing_comes_of_nothing(shape, zero):
    x = torch.empty(shape, device=zero)
    attention = Itself(32, 4, batch_first=True).eval().to(zero)
    layer = nn.TransformerEncoderLayer(32, 4, batch_first=True)
    with torch.no_grad():
        assert attention(x)[0].shape == layer.eval().to(zero)(x).shape == shape


def kernels(run):
    with torch.no_grad(), dpkit.sim.trace() as timeline:
        run()
    return [(s.name, s.flops) for s in timeline.spans if s.kind == "compute"]


@pytest.fixture(params=["cpu", "meta"])
def backed(request):
    """A device with numbers, or without."""
    with dpkit.sim.machine(backing=request.param):
        yield dpkit.devices(1, "sim")[0]


# 3 sequences of 10, width 32: 30 rows, and 4 heads of 8.
JOINED = 2 * 30 * 32 * 96  # q, k and v
SCORES = 2 * 3 * 4 * 10 * 10 * 8  # and as much for the sum of values
LAST = 2 * 30 * 32 * 32
HIDDEN = 2 * 30 * 32 * 64


def counted(found):
    return [flops for _, flops in found if flops]


def test_the_kernels_of_a_layer(backed):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    layer.eval().to(backed)
    x = torch.empty(SHAPE, device=backed)
    found = kernels(lambda: layer(x))
    products = [JOINED, 2 * SCORES, LAST, HIDDEN, HIDDEN]
    assert counted(found) == products
    assert len(found) == len(products) + 2 + 2  # two sums and two norms


def test_the_kernels_of_attention(backed):
    net = Itself(32, 4, batch_first=True).eval().to(backed)
    x = torch.empty(SHAPE, device=backed)
    mask = torch.zeros(10, 10, dtype=torch.bool, device=backed)
    fused = kernels(lambda: net(x, need_weights=False))
    assert counted(fused) == [JOINED, 2 * SCORES, LAST]
    assert len(fused) == 3
    for given in ({}, {"need_weights": False, "attn_mask": mask}):
        by_parts = counted(kernels(lambda given=given: net(x, **given)))
        assert by_parts == [JOINED, SCORES, SCORES, LAST]


def test_a_simulated_cpu_attends_by_parts():
    """As a CPU does, whose operator has no fused kernel: to the bit."""
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    with dpkit.sim.machine(accelerator="laptop-cpu"):
        (device,) = dpkit.devices(1, "sim")
        x = torch.randn(SHAPE)
        on_cpu, here = on_both(net, x, {}, torch.no_grad, device)
        assert torch.equal(here.cpu(), on_cpu)


def test_heads_that_the_fused_kernel_does_not_take(backed):
    """8 heads of 4: the width of a head counts, not that of the model."""
    net = Itself(32, 8, batch_first=True).eval().to(backed)
    x = torch.empty(SHAPE, device=backed)
    found = counted(kernels(lambda: net(x, need_weights=False)))
    # 8 heads of 4 multiply as much as 4 of 8.
    assert found == [JOINED, SCORES, SCORES, LAST]
