"""Which kernel computes fused attention, and in which blocks."""

from dataclasses import replace

import pytest

from dpkit.theory.hardware import ACCELERATORS
from dpkit.theory.hardware.causal_attention import ScoreBlock, block_of_scores
from dpkit.theory.hardware.fused_attention import attention_kernel


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


@pytest.mark.parametrize("size", [65, 80, 96, 128])
def test_an_a100_takes_the_largest_blocks_for_heads_of_65_to_128(size):
    """Those of 128 by 64 are of compute capability 8.6 and 8.9."""
    block = block_of_scores("efficient", True, 100, size)
    assert block == ScoreBlock(128, 128)
