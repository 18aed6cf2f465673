"""Data parallelism whose copies are cut into shards: ZeRO.

Data parallelism keeps all parameters, gradients and the optimizer's state on
every device. Here a device keeps a part of them. What it keeps whole, and
what in shards::

                     parameters    gradients    optimizer's state
    Copied           whole         whole        whole
    Zero1            whole         whole        shard
    Zero2            whole         shard        shard
    Zero3            shard         shard        shard

``flat_block`` -- a block of a network, its parameters in one flat tensor on
    each device: begin here;
``passes`` -- forward and backward, block by block on all devices;
``copied`` -- data parallelism, which keeps everything everywhere;
``zero1``, ``zero2``, ``zero3`` -- what each does before and after a block;
``messages`` -- what a block sends while the devices work on.

The bytes as formulas are in :mod:`dpbook.formulas.sharding`.

Source:
    S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion
    parameter models, 2019, arXiv:1910.02054.
"""

from dpkit.sharding.copied import Copied
from dpkit.sharding.flat_block import FlatBlock
from dpkit.sharding.messages import Scattering, gather_on_side_streams
from dpkit.sharding.passes import Passes
from dpkit.sharding.zero1 import Zero1
from dpkit.sharding.zero2 import Zero2
from dpkit.sharding.zero3 import Zero3

__all__ = [
    "Copied",
    "FlatBlock",
    "Passes",
    "Scattering",
    "Zero1",
    "Zero2",
    "Zero3",
    "gather_on_side_streams",
]
