"""What a device keeps, sends and has at the peak, where ZeRO cuts into shards.

Bytes for each parameter in float32 with Adam, on k devices::

    stage                        0       1       2       3
    parameters                   4       4       4     4/k
    gradients                    4       4     4/k     4/k
    Adam's two averages          8     8/k     8/k     8/k
    together, k = 4             16      10       7       4
    sent, times (k-1)/k          8       8       8      12

In the last row a gradient is reduced and scattered (4) and parameters are
gathered (4), at stage 3 twice: for forward, and again for backward.

The functions of the peak tell what stage 3 has during a step, where a block
is whole only while it computes, as with PyTorch's ``fully_shard``.
"""

NUM_WORDS = {"parameters": 1, "gradients": 1, "state": 2}  # of one parameter
SHARDED_FROM = {"parameters": 3, "gradients": 2, "state": 1}  # the stage


def kept_bytes(
    stage: int, num_parameters: float, num_devices: int, itemsize: int = 4
) -> dict[str, float]:
    """Return the bytes that a device keeps, by what they are for.

    That is after a step of Adam, before the gradients are forgotten.

    Args:
        stage: That of ZeRO, from 0 (nothing is cut) to 3.
        num_parameters: Those of the whole network.
        num_devices: How many devices share the shards.
        itemsize: The bytes of a value: 4 in float32.

    Example:
        >>> kept_bytes(2, num_parameters=12, num_devices=4)
        {'parameters': 48.0, 'gradients': 12.0, 'state': 24.0}

    Source:
        S. Rajbhandari et al., ZeRO: memory optimizations toward training
        trillion parameter models, 2019, arXiv:1910.02054, section 5.
    """
    size = itemsize * num_parameters
    cut = {name: stage >= first for name, first in SHARDED_FROM.items()}
    return {
        name: words * size / (num_devices if cut[name] else 1)
        for name, words in NUM_WORDS.items()
    }


def sent_bytes(stage: int, num_bytes: float, num_devices: int) -> float:
    """Return the bytes that each device sends in a step, by rings.

    All stages send as much as an allreduce, but the third gathers the
    parameters twice.

    Args:
        stage: That of ZeRO, from 0 to 3.
        num_bytes: Those of all parameters.
        num_devices: How many devices share the shards.

    Example:
        >>> sent_bytes(0, 80, num_devices=4), sent_bytes(3, 80, 4)
        (120.0, 180.0)

    Source:
        As for :func:`kept_bytes`, section 7.
    """
    return (
        (3 if stage == 3 else 2) * num_bytes * (num_devices - 1) / num_devices
    )


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
    devices, and 8.5 MB outside of them, of which 4.1 in the head::

        parameters, Adam's averages    3 · (8 · 50.4 + 8.5) / 4    308.8
        gradients of finished blocks   (8 - 2) · 50.4 / 4           75.6
        whole blocks                   4 · 50.4                    201.6
        whole root                     8.5 + 4.1                    12.6
                                                            MB:    598.6

    Args:
        num_blocks: How many blocks there are, 2 at least.
        block: The bytes of the parameters of a block.
        root: The bytes of the other parameters. They stay whole
            from forward to the end of backward.
        head: The bytes of those of them that have their gradients before the
            blocks do.
        k: The number of devices.

    Example:
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

    In addition to parameters, gradients and the two averages, Adam's
    ``foreach`` has one value for each parameter: the root of the second
    average. On few devices this is more than :func:`peak_parts`.

    Args:
        num_blocks: How many blocks there are.
        block: The bytes of the parameters of a block.
        root: The bytes of the parameters outside the blocks.
        k: The number of devices.

    Example:
        >>> update_peak(8, block=40, root=12, k=4)
        415.0
    """
    return 5 * (num_blocks * block + root) / k


def usual_peak(num_blocks: int, block: float, root: float, k: int) -> float:
    """Return the usual estimate: everything in shards, and one whole block.

    Everything is parameters, gradients and Adam's averages. A device holds
    more: see :func:`peak_parts`.

    Args:
        num_blocks: How many blocks there are.
        block: The bytes of the parameters of a block.
        root: The bytes of the parameters outside the blocks.
        k: The number of devices.

    Example:
        >>> usual = usual_peak(8, block=50.4, root=8.5, k=4)
        >>> peak = sum(peak_parts(8, 50.4, 8.5, head=4.1, k=4).values())
        >>> f"{usual:.1f} of {peak:.1f}, {1 - usual / peak:.0%} too low"
        '462.1 of 598.6, 23% too low'
    """
    return 4 * (num_blocks * block + root) / k + block
