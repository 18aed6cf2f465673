"""Which kernel computes fused attention."""

from dataclasses import replace

import pytest

from dpkit.sim.hardware import ACCELERATORS
from dpkit.sim.hardware.fused_attention import attention_kernel


def with_capability(number):
    return replace(ACCELERATORS["a100"], compute_capability=number)


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [
        ("", "flash"),
        ("6.0", "efficient"),
        ("7.5", "efficient"),
        ("8.0", "flash"),
        ("8.9", "flash"),
        ("9.0", "cudnn"),
        ("10.3", "cudnn"),
        ("12.0", "flash"),
    ],
)
def test_the_kernel_follows_the_compute_capability(capability, kernel):
    gpu = with_capability(capability)
    for dtype in ("float16", "bfloat16"):
        assert attention_kernel(gpu, dtype) == kernel
    assert attention_kernel(gpu, "float32") == "efficient"
