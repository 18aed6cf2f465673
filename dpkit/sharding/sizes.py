"""What a device keeps and what it sends, for data parallelism and for ZeRO.

Bytes for each parameter in float32 with Adam, on k devices::

    stage                        0       1       2       3
    parameters                   4       4       4     4/k
    gradients                    4       4     4/k     4/k
    Adam's two averages          8     8/k     8/k     8/k
    together, k = 4             16      10       7       4
    sent, times (k-1)/k          8       8       8      12

In the last row a gradient is reduced and scattered (4) and parameters are
gathered (4), at stage 3 twice: for forward, and again for backward.
"""

NUM_WORDS = {"parameters": 1, "gradients": 1, "state": 2}  # of one parameter
SHARDED_FROM = {"parameters": 3, "gradients": 2, "state": 1}  # the stage


def kept_bytes(
    stage: int, num_parameters: float, num_devices: int, itemsize: int = 4
) -> dict[str, float]:
    """Return the bytes that a device keeps, by what they are for.

    That is after a step of Adam, before the gradients are forgotten.

    Example:
        >>> from dpkit.sharding import kept_bytes
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

    ``num_bytes`` are those of all parameters. All stages send as much as an
    allreduce, but the third gathers the parameters twice.

    Example:
        >>> from dpkit.sharding import sent_bytes
        >>> sent_bytes(0, 80, num_devices=4), sent_bytes(3, 80, 4)
        (120.0, 180.0)

    Source:
        As for :func:`kept_bytes`, section 7.
    """
    return (
        (3 if stage == 3 else 2) * num_bytes * (num_devices - 1) / num_devices
    )
