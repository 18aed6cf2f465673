"""Seconds of operations and copies, against what can be worked by hand."""

import pytest

from dpkit.sim.hardware import Accelerator, Link
from dpkit.sim.hardware.costs import copy_seconds, operation_seconds

# 10 flops a second of 20 promised, 8 bytes a second of 10.
TOY = Accelerator(
    name="toy",
    flops_per_second={"float32": 20.0, "float16": 80.0},
    bytes_per_second=10.0,
    memory_bytes=1000,
    achieved_flops={"float32": 0.5, "float16": 0.25},
    achieved_bytes=0.8,
    half_flops=30.0,
    half_bytes=16.0,
    kernel_seconds=0.25,
    host_link="pcie3",
    fast_convolutions={"float32": 2.0},  # more than promised
    other_convolutions={"float32": 0.25},
    fused_attention={"flash": 0.1},
)


def test_arithmetic_bounds_a_product():
    assert (
        operation_seconds(TOY, flops=70, num_bytes=8) == 0.25 + (70 + 30) / 10
    )


def test_traffic_bounds_a_sum():
    assert (
        operation_seconds(TOY, flops=0, num_bytes=64) == 0.25 + (64 + 16) / 8
    )
    assert (
        operation_seconds(TOY, flops=10, num_bytes=64) == 0.25 + (64 + 16) / 8
    )


def test_the_dtype_decides_the_peak():
    assert (
        operation_seconds(TOY, flops=70, num_bytes=0, dtype="float16")
        == 0.25 + 100 / 20
    )


@pytest.mark.parametrize("dtype", ["float64", "tf32", "bfloat16"])
def test_a_dtype_without_a_rate_counts_as_float32(dtype):
    assert (
        operation_seconds(TOY, flops=70, num_bytes=0, dtype=dtype)
        == 0.25 + 100 / 10
    )


@pytest.mark.parametrize("dtype", ["float8", "int8", "int64"])
def test_what_float32_does_not_stand_for_is_refused(dtype):
    with pytest.raises(NotImplementedError, match="no rate") as refusal:
        operation_seconds(TOY, flops=70, num_bytes=0, dtype=dtype)
    assert str(refusal.value) == (
        "no rate is known for products in this dtype, so they cannot be timed "
        f"(dtype: {dtype}, accelerator: toy, known: float32, float16)"
    )
    assert (
        operation_seconds(TOY, flops=0, num_bytes=0, dtype=dtype) == 0.25
    )  # without a product


@pytest.mark.parametrize(
    ("kind", "rate"), [("fast", 40), ("other", 5), ("", 10)]
)
def test_a_class_of_convolutions_has_a_rate_of_its_own(kind, rate):
    seconds = operation_seconds(
        TOY, flops=70, num_bytes=0, dtype="float32", kind=kind
    )
    assert seconds == 0.25 + (70 + 30) / rate


@pytest.mark.parametrize(
    ("kind", "dtype", "rate"),
    [
        ("flash", "float16", 8),  # 0.1 of 80
        ("flash", "float32", 10),  # its rate is of 16 bits
        ("flash backward", "float16", 10),  # half of the rate of products
        ("cudnn", "float16", 10),
    ],
)
def test_attention_has_a_rate_of_its_own(kind, dtype, rate):
    seconds = operation_seconds(
        TOY, flops=70, num_bytes=0, dtype=dtype, kind=kind
    )
    assert seconds == 0.25 + (70 + 30) / rate


@pytest.mark.parametrize("kind", ["fast", "other"])
def test_convolutions_that_nobody_measured_go_as_products_do(kind):
    plain = operation_seconds(TOY, flops=70, num_bytes=0, dtype="float16")
    assert (
        operation_seconds(
            TOY, flops=70, num_bytes=0, dtype="float16", kind=kind
        )
        == plain
    )


def test_half_of_the_rate_is_reached_at_half_flops():
    full = 20.0 * 0.5
    seconds = (
        operation_seconds(TOY, flops=30, num_bytes=0) - TOY.kernel_seconds
    )
    assert 30 / seconds == full / 2


def test_an_operation_of_nothing_costs_its_kernel():
    assert operation_seconds(TOY, flops=0, num_bytes=0) == 0.25


@pytest.mark.parametrize(("limit", "seconds"), [(1e9, 25.5), (2, 50.5)])
def test_a_copy_goes_at_the_rate_of_the_narrowest_part(limit, seconds):
    link = Link(
        "toy",
        bytes_per_second=8.0,
        achieved=0.5,
        latency_seconds=0.5,
        peer_to_peer=True,
    )
    assert copy_seconds(link, 100, at_most=limit) == seconds
