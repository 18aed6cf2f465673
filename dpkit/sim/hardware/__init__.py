"""What a machine is made of, in numbers.

``parts`` -- accelerators, the links between them, their hosts: begin here;
``presets`` -- how the files in ``data/`` are found, read, checked, written;
``clusters`` -- devices of one kind, what joins them, what drives them;
``costs`` -- the seconds that an operation or a copy takes on them;
``kernel_traffic`` -- what kernels read more than once;
``fused_attention`` -- which kernel of attention a card takes;
``causal_attention`` -- which masked scores such kernels compute.

A new accelerator is a file in ``data/accelerators``, its name in
``ACCELERATORS`` (in ``parts.py``), and its name in the list of
``tests/sim/test_hardware.py``. A host is a file in ``data/hosts`` and a name
in ``HOSTS``, in the same way. A link is a file in ``data/links`` and a name in
``LINKS``; the test has two lists of them: of their names, and from fast to
slow.

The live figures of the book offer the cards that their own lists name:
``LINKS_OF`` in ``dpbook/explore/planner.py``, ``CARDS`` in
``dpbook/explore/step.py``, and the choices in ``dpbook/explore/decision.py``.
What part of its rate a card keeps in a long run is in ``SUSTAINED``, in
``dpbook/planner/work.py``. No test asks for a new one in these.
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
