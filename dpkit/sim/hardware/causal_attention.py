"""Causal attention: which scores a fused kernel computes.

A query sees the keys up to its own place, so about half of the scores are
masked. A fused kernel computes scores in blocks, and leaves a block out if all
of it is masked. With blocks of 3 queries and 3 keys::

    x  seen      .  masked, but computed      -  left out

              keys
              0 1 2   3 4 5
    query 0   x . .   - - -
          1   x x .   - - -
          2   x x x   - - -

          3   x x x   x . .
          4   x x x   x x .
          5   x x x   x x x     27 of 36 are computed

With blocks of a side n, a sequence of s tokens has s/n blocks on the diagonal,
half of each for nothing. So the part of all scores that is computed is::

    1/2 + n/2s          n = 128, of GPUs: 1/2 + 64/s

Kernels whose blocks are not square, such as 128 queries by 64 keys, compute
as many as with squares of the longer side: the diagonal passes through as many
blocks of 128 in all. Backward follows the same rule.

Assumed: the blocks that kernels take on an A100 without dropout. Cards of
other kinds take smaller ones for some sizes of heads, and compute up to 10 %
less at 512 tokens, 3 % less at 2,048. cuDNN's are not known: 128 is assumed.

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
    the CPU's: ``num_keys``, and the sizes, up to 256 by 512.

    The mask begins at the first query and the first key in all of them, as
    ``scaled_dot_product_attention`` calls them.
"""

GPU_SIDE = 128
SMALL_SIDE = 64  # "efficient" up to heads of 64, "flash" backward beyond 128
CPU_SIDE = 512


def block_side(kernel: str, backward: bool, head_size: int) -> int:
    """Return the longer side of the blocks that a kernel computes.

    Args:
        kernel: "flash", "efficient", "cudnn" or "cpu".
        backward: Whether it is the kernel of backward.
        head_size: The length of the vector of a query.

    Example:
        >>> block_side("flash", False, head_size=80)
        128
    """
    if kernel == "cpu":
        return CPU_SIDE
    if kernel == "efficient" and head_size <= 64:
        return SMALL_SIDE
    if kernel == "flash" and backward and head_size > 128:
        return SMALL_SIDE
    return GPU_SIDE


def num_scores(queries: int, keys: int, *, side: int) -> int:
    """Return how many scores are computed of causal attention.

    Args:
        queries: How many queries a head has.
        keys: How many keys it has.
        side: That of the blocks.

    Example:
        As above; and 2,048 tokens in blocks of 128, the part of all scores:

        >>> num_scores(6, 6, side=3)
        27
        >>> num_scores(2048, 2048, side=128) / 2048**2 == 1 / 2 + 64 / 2048
        True
    """
    # The queries of a row of blocks compute the keys up to its last block.
    total = 0
    for first in range(0, queries, side):
        rows = min(side, queries - first)
        total += rows * min(first + side, keys)
    return total
