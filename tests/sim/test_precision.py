"""Products in each dtype: the rate they go at, or who refuses them."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.sim.hardware import ACCELERATORS
from dpkit.sim.hardware.costs import achieved_flops_per_second
from dpkit.sim.operators.precision import compute_dtype

(ZERO,) = dpkit.devices(1, "sim")
FLOAT8 = torch.float8_e4m3fn, torch.float8_e5m2
ONE_RATE = replace(
    ACCELERATORS["laptop-cpu"],
    name="one-rate",
    flops_per_second={"float32": 1e12},
    achieved_flops={"float32": 1.0},
)


def spans(run):
    """Return what the device does, without filling and casting."""
    with dpkit.sim.trace() as timeline:
        run()
    return [s for s in timeline.spans if s.kind == "compute" and s.flops]


def seconds(run, accelerator="h100"):
    with dpkit.sim.machine(accelerator=accelerator):
        (span,) = spans(run)
    return span.end - span.start


def matrix(n, dtype=torch.float32):
    return torch.ones(n, n, device=ZERO).to(dtype)


def scaled(a, b):
    one = torch.ones((), device=ZERO)
    return torch._scaled_mm(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )


def scaled_by_name(a, b):
    one, kind = torch.ones((), device=ZERO), F.ScalingType.TensorWise
    return F.scaled_mm(
        a, b.t(), one, kind, one, kind, output_dtype=torch.bfloat16
    )


def test_half_precision_is_faster():
    x = torch.ones(500, 500, device=ZERO)
    y = x.half()
    single = seconds(lambda: x @ x, "v100")
    assert seconds(lambda: y @ y, "v100") < single / 3


def test_tf32_where_pytorch_would_use_it():
    """In convolutions by default, in products if asked; on A100, not V100."""
    images = torch.ones(8, 64, 56, 56, device=ZERO)
    weights = torch.ones(64, 64, 3, 3, device=ZERO)
    x = torch.ones(2000, 2000, device=ZERO)

    def convolve():
        nn.functional.conv2d(images, weights)

    rounded = seconds(convolve, "a100")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert seconds(convolve, "a100") > 2 * rounded
        on_v100 = seconds(convolve, "v100")
    assert seconds(convolve, "v100") == on_v100
    exact = seconds(lambda: x @ x, "a100")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert seconds(lambda: x @ x, "a100") < exact / 2
    finally:
        torch.set_float32_matmul_precision(before)


def test_either_way_to_ask_for_tf32():
    x = torch.ones(9, 9, device=ZERO)
    precision = torch.backends.cuda.matmul
    before = precision.fp32_precision
    precision.fp32_precision = "tf32"
    try:
        assert compute_dtype("mm", x) == "tf32"
        assert (x @ x).sum() == 9**3
    finally:
        precision.fp32_precision = before
    assert compute_dtype("mm", x) == "float32"


SCALED = [scaled]
if hasattr(F, "scaled_mm"):  # of newer versions
    SCALED.append(scaled_by_name)


@pytest.mark.parametrize("multiply", SCALED)
@pytest.mark.parametrize(
    ("accelerator", "least", "most"),
    [
        ("h100", 1.3e15, 1.6e15),
        ("h200", 1.3e15, 1.6e15),
        ("b200", 3.3e15, 3.6e15),
    ],
)
def test_float8_is_faster_than_16_bits(multiply, accelerator, least, most):
    """2n³, and the work at which half of the rate is reached."""
    n = 2048
    # Without values: some CPUs take minutes for such a product in float8.
    with dpkit.sim.machine(accelerator=accelerator, backing="meta"):
        a, x = matrix(n, FLOAT8[0]), matrix(n, torch.bfloat16)
        (product,) = spans(lambda: multiply(a, a))
        (in_16_bits,) = spans(lambda: x @ x)
    fast = product.end - product.start
    assert fast < in_16_bits.end - in_16_bits.start
    preset = ACCELERATORS[accelerator]
    rate = achieved_flops_per_second(preset, "float8")
    work = 2 * n**3 + preset.half_flops
    assert fast == pytest.approx(preset.kernel_seconds + work / rate)
    assert least < rate < most


def test_both_kinds_of_float8_have_one_rate():
    a, b = (matrix(64, dtype) for dtype in FLOAT8)
    assert seconds(lambda: scaled(a, b)) == seconds(lambda: scaled(a, a))


WITHOUT = [
    name
    for name, preset in ACCELERATORS.items()
    if "float8" not in preset.flops_per_second
]


@pytest.mark.parametrize("multiply", SCALED)
@pytest.mark.parametrize("accelerator", [*WITHOUT, ONE_RATE])
def test_float8_without_a_rate_is_refused(multiply, accelerator):
    a = matrix(32, FLOAT8[0])
    name = getattr(accelerator, "name", accelerator)
    with (
        dpkit.sim.machine(accelerator=accelerator),
        pytest.raises(NotImplementedError, match="no rate") as refusal,
    ):
        multiply(a, a)
    assert str(refusal.value).startswith(
        "no rate is known for products in this dtype, so they cannot be timed "
        f"(dtype: float8, accelerator: {name}, known: "
    )


class InFloat8(torch.autograd.Function):
    """The gradient is a product in float8."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        small = dy.to(FLOAT8[1])
        return scaled(small, small).float()


def test_a_refusal_in_backward_arrives_and_leaves_all_usable():
    x = matrix(32).requires_grad_()
    y = InFloat8.apply(x)
    with dpkit.sim.machine(accelerator="a100"):
        with pytest.raises(NotImplementedError, match="accelerator: a100"):
            y.backward(torch.ones_like(y))
        x.grad = None
        (x * 3).sum().backward()
    assert x.grad.sum() == 3 * 32**2
    with dpkit.sim.machine(accelerator="h100"):
        InFloat8.apply(x).sum().backward()


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
)
@pytest.mark.parametrize("shape", [(8, 8), (2, 8, 8)])
def test_integers_have_no_rate(shape, dtype, accelerator):
    name = str(dtype).removeprefix("torch.")
    with dpkit.sim.machine(accelerator=accelerator):
        x = torch.ones(shape, dtype=dtype, device=ZERO)
        with pytest.raises(NotImplementedError, match=f"dtype: {name}, acc"):
            x @ x


def test_float8_has_no_product_without_scales():
    x = matrix(8, FLOAT8[0])
    with pytest.raises(NotImplementedError, match="dtype: float8_e4m3fn, acc"):
        x @ x


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch._int_mm(x, x),
        lambda x: F.conv2d(x[None, None], x[None, None, :3, :3]),
    ],
)
def test_integers_that_have_no_rate_are_refused(run):
    with pytest.raises(NotImplementedError, match="dtype: int8, accelerator"):
        run(matrix(32, torch.int8))


def test_integers_may_be_added_and_counted():
    x = matrix(8, torch.int64)
    assert (x + x).sum() == 2 * 8**2


@pytest.mark.parametrize(
    ("dtype", "real"),
    [(torch.complex64, "float32"), (torch.complex128, "float64")],
)
@pytest.mark.parametrize("lists", [False, True])
def test_a_complex_product_takes_four_real_ones(dtype, real, lists):
    x, y = matrix(300, dtype), matrix(300, getattr(torch, real))
    if lists:
        x, y = x[None], y[None]
    with dpkit.sim.machine(accelerator="v100"):
        (span,), (one,) = spans(lambda: x @ x), spans(lambda: y @ y)
    assert span.flops == 4 * one.flops == 4 * 2 * 300**3
    v100 = ACCELERATORS["v100"]
    rate = achieved_flops_per_second(v100, real)
    expected = v100.kernel_seconds + (span.flops + v100.half_flops) / rate
    assert span.end - span.start == pytest.approx(expected)


def test_products_that_pytorch_does_not_count():
    a, b = torch.ones(8, 16, device=ZERO), torch.ones(16, 5, device=ZERO)
    y = torch.ones(8, 5, device=ZERO)
    one = 2 * 8 * 16 * 5
    lists = [t.expand(3, -1, -1) for t in (a, b)]
    for run, count in (
        (lambda: y.addmm_(a, b), 1),
        (lambda: y[None].baddbmm_(a[None], b[None]), 1),
        (lambda: torch.addbmm(y, *lists), 3),
    ):
        (span,) = spans(run)
        assert span.flops == count * one


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((48, 32), (3, 32, 64)),
        ((3, 16, 32), (32, 192)),
        ((16, 96), (96, 64)),
        ((3, 16, 32), (3, 32, 64)),
    ],
)
def test_groups_of_products_take_what_they_take_one_by_one(a, b):
    """Three products of (16, 32) and (32, 64), in one of four forms."""
    x, y = (torch.ones(*s, device=ZERO, dtype=torch.bfloat16) for s in (a, b))
    ends = {48: 16, 192: 64, 96: 32}
    size = ends.get(a[0]) or ends.get(b[-1]) or ends.get(a[-1])
    offsets = None
    if size:
        offsets = torch.tensor([1, 2, 3], device=ZERO, dtype=torch.int32)
        offsets = offsets * size
    (span,) = spans(lambda: torch._grouped_mm(x, y, offs=offsets))
    assert span.flops == 3 * 2 * 16 * 32 * 64


def told_of(accelerator):
    """Return what a timeline says of dtypes without a rate."""
    with (
        dpkit.sim.machine(accelerator=accelerator),
        dpkit.sim.trace() as timeline,
    ):
        matrix(3)
    return [
        line for line in timeline.assumptions if "there is no other" in line
    ]


def test_dtypes_that_go_at_the_rate_of_float32_are_told():
    told = {name: told_of(name) for name in ACCELERATORS}
    assert {name: lines for name, lines in told.items() if lines} == {}
    assert told_of(ONE_RATE) == [
        "Products in float64, float16, bfloat16 go at the rate of float32, "
        "because there is no other (one-rate)."
    ]
