"""Tests of dpkit.sim.kernels.half: products of float16."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dpkit import sim
from dpkit.sim.hardware.costs import operation_seconds

sim.register()
aten = torch.ops.aten


def gradients_of_convolution(a, b):
    settings = [1, 1], [1, 1], [1, 1], False, [0, 0], 1
    x, w = a[None], b[None, :, :3, :3]
    dy = a[None, :1]
    masks = [True, True, True]
    return aten.convolution_backward(dy, x, w, [1], *settings, masks)


def attention(a, b):
    heads = [x[None].clone().requires_grad_() for x in (a, b, a - b)]
    y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    return y.detach(), *torch.autograd.grad(y, heads, b[None])


PRODUCTS = {
    "mm": lambda a, b: a[0] @ b[0],
    "addmm": lambda a, b: torch.addmm(a[1, 0], a[0], b[0], beta=0.5, alpha=3),
    "addmm_": lambda a, b: a[1].clone().addmm_(a[0], b[0]),
    "bmm": lambda a, b: torch.bmm(a, b.mT),
    "baddbmm": lambda a, b: torch.baddbmm(b[:, :1], a, b),
    "addbmm": lambda a, b: torch.addbmm(b[0], a, b),
    "convolution": lambda a, b: nn.functional.conv2d(a[None], b[None]),
    "its gradients": gradients_of_convolution,
    "attention": attention,
}


def results(name, device, dtype, size=16):
    """Return what an operation computes, as tensors on the CPU."""
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(2, size, size, generator=generator).half().to(device)
        for _ in range(2)
    )
    if name == "attention":  # its last argument is computed before
        a = a.round()
        b = b.round()
    out = PRODUCTS[name](a.to(dtype), b.to(dtype))
    return [x.cpu() for x in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.parametrize("name", PRODUCTS)
def test_float16_is_computed_in_float32_and_rounded_once(name):
    wide = results(name, "cpu", torch.float32)
    found = results(name, "sim:0", torch.float16)
    if name == "attention":  # backward begins from a rounded output
        for x, y in zip(found, wide):
            torch.testing.assert_close(x, y.half(), atol=2e-3, rtol=1e-2)
        found, wide = found[:1], wide[:1]
    for x, y in zip(found, wide, strict=True):
        assert x.dtype == torch.float16
        assert x.equal(y.half())


def test_a_product_of_two_dtypes_is_refused():
    half = torch.ones(2, 2, device="sim:0", dtype=torch.float16)
    with pytest.raises(RuntimeError, match="same dtype"):
        half @ half.float()


def test_the_copies_in_float32_are_no_memory_of_the_device():
    half = torch.ones(64, 64, device="sim:0", dtype=torch.float16)
    torch.sim.reset_peak_memory_stats(0)
    before = torch.sim.memory_allocated(0)
    product = half @ half
    assert torch.sim.max_memory_allocated(0) - before == product.nbytes


def test_the_clock_charges_the_rate_and_the_bytes_of_float16():
    half = torch.ones(512, 512, device="sim:0", dtype=torch.float16)
    with sim.machine(accelerator="a100"), sim.trace() as timeline:
        half @ half
    spans = [s for s in timeline.spans if s.num_bytes]
    assert [(s.name, s.num_bytes) for s in spans] == [("mm", 3 * half.nbytes)]
    a100 = sim.ACCELERATORS["a100"]
    expected = operation_seconds(
        a100, flops=2 * 512**3, num_bytes=3 * half.nbytes, dtype="float16"
    )
    assert spans[0].end - spans[0].start == pytest.approx(expected)


def normalized(rank, dtype):
    """Train a SyncBatchNorm on a rank; return what it has made."""
    norm = nn.SyncBatchNorm(3).to(f"cuda:{rank}")
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(4, 3, 2, 2, generator=generator).half().to(dtype)
    x = x.to(f"cuda:{rank}").requires_grad_()
    y = norm(x)
    y.backward(x.detach())
    return y, x.grad, norm.weight.grad, norm.bias.grad, norm.running_var


def on_ranks(dtype, backing):
    machine = sim.machine(num_devices=2, hosts="per_device", backing=backing)
    with machine, sim.as_cuda():
        return sim.launch(
            lambda: [
                (x.dtype, x.shape, None if backing == "meta" else x.cpu())
                for x in normalized(dist.get_rank(), dtype)
            ],
            2,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_sync_batch_norm_has_the_same_shapes_without_values(dtype):
    expected = [[item[:2] for item in rank] for rank in on_ranks(dtype, "cpu")]
    found = [[item[:2] for item in rank] for rank in on_ranks(dtype, "meta")]
    assert found == expected
    assert [dtype for dtype, _ in found[0]] == [dtype] * 2 + [
        torch.float32
    ] * 3


def test_sync_batch_norm_rounds_float16_once():
    for half, wide in zip(
        *(on_ranks(d, "cpu") for d in (torch.float16, torch.float32))
    ):
        for (dtype, _, x), (_, _, y) in zip(half, wide):
            torch.testing.assert_close(x, y.to(dtype))
