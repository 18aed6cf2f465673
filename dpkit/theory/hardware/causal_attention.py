"""Causal attention: which scores a fused kernel computes.

A query sees the keys up to its own place, so about half of the scores are
masked. A fused kernel computes scores in blocks, and leaves a block out if all
of it is masked. With blocks of 2 queries and 3 keys::

    x  seen      .  masked, but computed      -  left out

              keys
              0 1 2   3 4 5     the last query sees    so computed are
    query 0   x . .   - - -
          1   x x .   - - -          2 keys              2 · 3 scores

          2   x x x   . . .
          3   x x x   x . .          4 keys              2 · 6 scores

          4   x x x   x x .
          5   x x x   x x x          6 keys              2 · 6 scores
                                                     30 of 36 together

Backward goes over the blocks of keys, and for each over those of the queries
that see one of its keys: the same rule. The blocks have other sizes there.

Assumed: the blocks that kernels take on an A100 without dropout. Other cards
take smaller ones: an H100 64 queries by 64 keys for heads of more than 192,
and cards of compute capability 8.6 and 8.9, such as an RTX 4090, 128 by 64
backward for heads of 65 to 96 ("efficient"). cuDNN's are not known: 128 by
128 is assumed.

Source:
    Dao-AILab/flash-attention, csrc/flash_attn/src: ``n_block_max`` in
    flash_fwd_kernel.h (commit 0142ff0) and ``m_block_min`` in
    flash_bwd_kernel.h (04da83f). The sizes are in flash_fwd_launch_template.h
    (01afd16) and flash_bwd_launch_template.h (073afd5).

    PyTorch, aten/src/ATen/native/transformers/cuda/mem_eff_attention, for the
    kernel called "efficient": ``num_keys`` in kernel_forward.h and
    ``getQueryStart`` in kernel_backward.h. The sizes, of bfloat16, are in
    kernels/cutlassF.h and kernels/cutlassB.h.

    PyTorch, aten/src/ATen/native/cpu/FlashAttentionKernel.cpp (008ec6b), for
    the CPU's: ``num_keys``, and the sizes.

    The mask begins at the first query and the first key in all of them, as
    ``scaled_dot_product_attention`` calls them.
"""

from math import ceil, inf
from typing import NamedTuple


class ScoreBlock(NamedTuple):
    """How many queries and how many keys meet in a block of scores."""

    queries: int
    keys: int


# Kernel, and whether it is backward -> the blocks for heads up to a size; on a
# CPU, for up to so many queries.
BLOCKS: dict[tuple[str, bool], dict[float, ScoreBlock]] = {
    ("flash", False): {64: ScoreBlock(128, 128), inf: ScoreBlock(128, 64)},
    ("flash", True): {
        64: ScoreBlock(128, 128),
        128: ScoreBlock(64, 128),
        inf: ScoreBlock(64, 64),
    },
    ("efficient", False): {
        64: ScoreBlock(64, 64),
        128: ScoreBlock(64, 128),
        inf: ScoreBlock(32, 128),
    },
    ("efficient", True): {
        64: ScoreBlock(64, 64),
        128: ScoreBlock(128, 128),
        inf: ScoreBlock(128, 64),
    },
    ("cudnn", False): {inf: ScoreBlock(128, 128)},
    ("cudnn", True): {inf: ScoreBlock(128, 128)},
}
CPU_BLOCKS = {
    191: ScoreBlock(32, 512),
    767: ScoreBlock(64, 512),
    inf: ScoreBlock(256, 512),
}


def block_of_scores(
    kernel: str, backward: bool, queries: int, head_size: int
) -> ScoreBlock:
    """Return the size of the blocks that a kernel computes.

    Args:
        kernel: "flash", "efficient", "cudnn" or "cpu".
        backward: Whether it is the kernel of backward.
        queries: How many queries a head has.
        head_size: The length of the vector of a query.

    Example:
        >>> block_of_scores("flash", False, queries=2048, head_size=80)
        ScoreBlock(queries=128, keys=64)
    """
    if kernel == "cpu":
        sizes = CPU_BLOCKS
        asked = queries
    else:
        sizes = BLOCKS[kernel, backward]
        asked = head_size
    return next(block for most, block in sizes.items() if asked <= most)


def num_scores(queries: int, keys: int, block: ScoreBlock) -> int:
    """Return how many scores are computed of causal attention.

    Example:
        As above; and one block, which is computed in any case:

        >>> num_scores(6, 6, ScoreBlock(queries=2, keys=3))
        30
        >>> num_scores(6, 5, ScoreBlock(queries=128, keys=64))
        30
    """
    # first  the first query of a block
    # last   the one after its last query, which is how many keys that one sees
    total = 0
    for first in range(0, queries, block.queries):
        last = min(first + block.queries, queries)
        blocks = ceil(min(last, keys) / block.keys)
        total += (last - first) * min(blocks * block.keys, keys)
    return total
