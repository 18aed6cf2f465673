"""What a machine is made of, in numbers.

``parts`` -- accelerators, the links between them, their hosts: begin here;
``presets`` -- how the files in ``data/`` are found, read, checked, written;
``clusters`` -- devices of one kind, what joins them, what drives them;
``costs`` -- the seconds that an operation or a copy takes on them;
``memory_traffic`` -- what kernels read more than once;
``fused_attention`` -- which kernel of attention a card takes;
``causal_attention`` -- which masked scores such kernels compute.

A new link is a file in ``data/links``. Enter its name in ``LINKS`` (in
``parts.py``) and in two lists of ``tests/sim/test_hardware.py``: of the
names, and of the links from fast to slow. A new accelerator or host is a file
and a name in the same way; of their names the tests have one list.
"""

from dpkit.sim.hardware.causal_attention import block_side, num_scores
from dpkit.sim.hardware.clusters import Cluster, cluster
from dpkit.sim.hardware.costs import (
    achieved_flops_per_second,
    copy_seconds,
    operation_seconds,
)
from dpkit.sim.hardware.fused_attention import attention_kernel
from dpkit.sim.hardware.parts import (
    ACCELERATORS,
    AS_FLOAT32,
    ATTENTION_KINDS,
    DTYPES,
    HALVES,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
)
from dpkit.sim.hardware.presets import find, save

__all__ = [
    "ACCELERATORS",
    "AS_FLOAT32",
    "ATTENTION_KINDS",
    "Accelerator",
    "Cluster",
    "DTYPES",
    "HALVES",
    "HOSTS",
    "Host",
    "LINKS",
    "Link",
    "achieved_flops_per_second",
    "attention_kernel",
    "block_side",
    "cluster",
    "copy_seconds",
    "find",
    "num_scores",
    "operation_seconds",
    "save",
]
