"""Rates of PyTorch's kernels of attention, in bfloat16."""

from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from recorders.gpu.stopwatch import seconds_of

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
HEAD_SIZES = (64, 128)
LENGTHS = (1_024, 4_096, 16_384)
TOKENS = 16_384  # of all sequences together
WIDTH = 2_048  # of all heads together


def time_attention(device: torch.device) -> list[dict[str, Any]]:
    """Time each kernel on heads and sequences of some sizes."""
    return [
        _time(kernel, size, length, causal, device)
        for size, length, causal, kernel in product(
            HEAD_SIZES, LENGTHS, (True, False), KERNELS
        )
    ]


def _time(
    kernel: str, size: int, length: int, causal: bool, device: torch.device
) -> dict[str, Any]:
    rows, heads = TOKENS // length, WIDTH // size
    shape = rows, heads, length, size
    random = partial(torch.randn, device=device, dtype=torch.bfloat16)
    q, k, v = (random(shape, requires_grad=True) for _ in range(3))

    def forward() -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    with sdpa_kernel(KERNELS[kernel]):
        y = forward()
        gradient = torch.randn_like(y)
        with torch.no_grad():
            seconds = seconds_of(forward)
        backward = partial(
            torch.autograd.grad, y, (q, k, v), gradient, retain_graph=True
        )
        # Two products of all queries with all keys, or with half of them.
        flops = 4 * rows * heads * length**2 * size // (2 if causal else 1)
        return {
            "kernel": kernel,
            "head_size": size,
            "length": length,
            "causal": causal,
            "rows": rows,
            "heads": heads,
            "flops": flops,
            "forward_seconds": seconds,
            "backward_seconds": seconds_of(backward),
        }
