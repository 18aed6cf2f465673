"""Gradients in flat buckets, and back.

With a message for each gradient, the latency is paid many times; one message
for all waits for the last gradient. A bucket holds some gradients, and can
leave when the last of them is there::

    backward makes   g5   g4   g3   g2   g1   g0
    bucket 0        [g5   g4 ··]                        leaves while g3 is made
    bucket 1                  [g3   g2   g1 ···]        leaves while g0 is made
    bucket 2                                [g0 ·]

Each "·" is a flag, one for each gradient of the bucket: 1 where backward made
the gradient, 0 where it did not. It travels with the gradients, so that a rank
that has no gradient learns whether another rank has one.

Begin with ``bucket``: one bucket, and which gradients share it. ``rounds``
fills all buckets of a rank in backward, and calls a function with each full
one. How it travels is that function's business.
"""

from dpkit.buckets.bucket import Bucket, assign
from dpkit.buckets.rounds import BYTES_PER_MEGABYTE, Buckets

__all__ = [
    "BYTES_PER_MEGABYTE",
    "Bucket",
    "Buckets",
    "assign",
]
