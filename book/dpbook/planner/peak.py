"""What a device has at the peak of a step, by PyTorch's engines.

Bytes for each parameter that a device has before sharding, where d devices
have the same parameters::

    N  parameters of the device      B  those of a block
    W  those of the words' ends      L  its blocks

    always               12N/d   itself and Adam's two averages, in float32;
                                 12N with DDP
                         2N      itself in 16 bits; with ZeRO-3 a block's 2B
                                 and the ends' 2W alone
                         4N      sums of gradients, with micro-batches
                         4N      DDP's buckets, in place of sharding

Blocks keep activations until backward has passed them, and gradients of a
block are cast, put into one flat tensor and sent, in the last micro-batch. So
four moments can be the fullest. With ZeRO-3, and L blocks that keep K each::

    the scores of the words      LK, what the ends keep, and 2B
    a block computed again       LK, the rest of a block, 4B and W
    the first block is reduced   (L - 1)K, W for the ends' gradient, and
                                 12B: the next block 2, gradients 2, in
                                 float32 4, flat 4
    the second is reduced        (L - 2)K, the same, and 4B that still travel

A Llama of four blocks on 8 devices, B = 177 million, in GB: always 1.5 and
0.5 for the ends; the four are 6.7, 6.4, 7.0, 6.8. The third is the peak, 7.0
on simulated devices.

Source:
    The peaks of steps on simulated devices (book/_data/mesh.json,
    tests/book/test_plain.py).
"""

from typing import NamedTuple


class Held(NamedTuple):
    """What a device of a layout has, in parameters and in bytes."""

    parameters: float  #: N
    block: float  #: B
    ends: float  #: W, of the embedding and of the scores
    blocks: float  #: L, all of them on this device
    flying: float  #: the same, times the micro-batches in flight
    kept: float  #: bytes that a block keeps
    again: float  #: bytes besides, while it is computed again
    ends_kept: float  #: bytes that the ends keep
    copies: int  #: devices that have the same parameters, d
    zero: int  #: the stage of ZeRO
    several: bool  #: whether there are several micro-batches


class Moment(NamedTuple):
    """Bytes in addition to those that are always there."""

    weights: float
    gradients: float
    activations: float


def moments(held: Held) -> list[Moment]:
    """Return the four moments of a step that can be the fullest."""
    b = held.block
    whole = held.zero == 3  # only while they compute
    ends = held.ends if whole else 0.0
    weights = 2 * b if whole else 0.0
    kept = held.kept
    cast = 2 * b if held.several else 6 * b  # a sum is in float32 already
    return [
        Moment(weights, 0.0, held.flying * kept + held.ends_kept),
        Moment(2 * weights, ends, held.flying * kept + held.again),
        Moment(weights, ends + cast + 4 * b, (held.blocks - 1) * kept),
        Moment(weights, ends + cast + 8 * b, (held.blocks - 2) * kept),
    ]


def peak(held: Held) -> tuple[float, float, float, float]:
    """Return the bytes of weights, gradients, state and activations."""
    n = held.parameters
    shards = held.copies if held.zero else 1
    weights = 4 * n / shards + 2 * (held.ends if held.zero == 3 else n)
    buckets = held.copies > 1 and not held.zero
    gradients = 4 * n * (held.several + buckets)
    fullest = max(moments(held), key=sum)
    return (
        weights + fullest.weights,
        gradients + fullest.gradients,
        8 * n / shards,
        fullest.activations,
    )
