"""What is on a device at the peak, where a model is sharded block by block.

Parameters, gradients and Adam's two averages lie in shards. A block is whole
only while it computes, as with PyTorch's ``fully_shard``. All is in float32.
"""

# Backward has come to block 1 of 0 … 7; time runs from the left::
#
#     backward                 |== block 2 ==|== block 1 ==|
#     weights of 1    |gather|=====(next)====|== in use ===|      whole
#     weights of 0                           |gather|=(next)      whole
#     gradients of 1                         |= they grow =|      whole
#     gradients of 2                         |reduce-scatter|     whole
#     gradients of 3 … 7                                          shards
#
# Four blocks are whole. Backward of block 0 has one less: nothing is next.
WHOLE_BLOCKS = (
    "weights of the block in use",
    "weights of the next block",
    "gradients of the block in use",
    "gradients that are being reduced",
)


def peak_parts(
    num_blocks: int, block: float, root: float, head: float, k: int
) -> dict[str, float]:
    """Return the bytes alive at the peak of backward, by what they are for.

    It lies in backward of block 1, from the second step on. Activations are
    left out: they come to this. At the peak of 8 blocks of 50.4 MB on 4
    devices, with 8.5 MB beside them, of which 4.1 in the head::

        parameters, Adam's averages    3 · (8 · 50.4 + 8.5) / 4    308.8
        gradients of finished blocks   (8 - 2) · 50.4 / 4           75.6
        whole blocks                   4 · 50.4                    201.6
        whole root                     8.5 + 4.1                    12.6
                                                            MB:    598.6

    Args:
        num_blocks: How many there are, 2 at least.
        block: The bytes of a block's parameters.
        root: Those of the parameters beside the blocks, which stay whole
            from forward to the end of backward.
        head: Those of the root whose gradients are there before the blocks'.
        k: The number of devices.

    Example:
        >>> from dpkit.theory.sharding import peak_parts
        >>> peak_parts(8, block=40, root=12, head=4, k=4)
        {'shards': 249.0, 'gradients': 60.0, 'blocks': 160, 'root': 16}
    """
    return {
        "shards": 3 * (num_blocks * block + root) / k,
        "gradients": (num_blocks - 2) * block / k,
        "blocks": len(WHOLE_BLOCKS) * block,
        "root": root + head,
    }


def update_peak(num_blocks: int, block: float, root: float, k: int) -> float:
    """Return the bytes alive while Adam updates a shard of everything.

    Beside parameters, gradients and the two averages, Adam's ``foreach`` has
    one number for each parameter: the root of the second average. On few
    devices this is more than :func:`peak_parts`.

    Example:
        >>> from dpkit.theory.sharding import update_peak
        >>> update_peak(8, block=40, root=12, k=4)
        415.0
    """
    return 5 * (num_blocks * block + root) / k


def usual_peak(num_blocks: int, block: float, root: float, k: int) -> float:
    """Return the usual estimate: everything in shards, and one whole block.

    Everything is parameters, gradients and Adam's averages. A device holds
    more: see :func:`peak_parts`.

    Example:
        >>> from dpkit.theory.sharding import peak_parts, usual_peak
        >>> usual = usual_peak(8, block=50.4, root=8.5, k=4)
        >>> peak = sum(peak_parts(8, 50.4, 8.5, head=4.1, k=4).values())
        >>> f"{usual:.1f} of {peak:.1f}, {1 - usual / peak:.0%} too low"
        '462.1 of 598.6, 23% too low'
    """
    return 4 * (num_blocks * block + root) / k + block
