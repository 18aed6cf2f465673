"""The networks of the book, counted: what a step launches and computes.

A step has three parts: forward, backward, update. Each is a list of
operations in the order in which the host launches them. The counts are in
``data/networks.json``; ``scripts/recorders/counts.py`` takes them from steps
on a simulated device, and a test takes them again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from dpkit.sim.hardware import Cluster, operation_seconds
from dpkit.units import check_known

COUNTED = ("LeNet", "ResNet-18", "wide")
PARTS = ("forward", "backward", "update")
IMAGE_BYTES = 4 * 28 * 28  # of every example
LABEL_BYTES = 8


class Counted(NamedTuple):
    """What a device does for one or a few launches, for ``b`` images."""

    views: int  #: that the host makes before, which launch nothing
    launches: int
    flops: float  #: times b
    more_flops: float  #: in addition, whatever b is
    num_bytes: float  #: times b
    more_bytes: float  #: in addition, whatever b is
    dtype: str
    convolution: str  #: its class, as for ``operation_seconds``

    def seconds(self, images: float, cluster: Cluster) -> float:
        """Return the seconds of a device for so many images."""
        return operation_seconds(
            cluster.accelerator,
            flops=self.flops * images + self.more_flops,
            num_bytes=self.num_bytes * images + self.more_bytes,
            dtype=self.dtype,
            kind=self.convolution,
        )


@dataclass(frozen=True)
class CountedNetwork:
    """A network of the book, and the step with which it is trained."""

    forward: Sequence[Counted]
    backward: Sequence[Counted]
    update: Sequence[Counted]
    #: The bytes of each gradient, and how many operations of backward come
    #: before it, in the order in which they are there.
    gradients: Sequence[tuple[int, int]]

    @property
    def num_launches(self) -> int:
        """How many operations a step launches on one device."""
        parts = (self.forward, self.backward, self.update)
        return sum(o.launches for part in parts for o in part)


@cache
def network(name: str) -> CountedNetwork:
    """Return a network by its name in ``COUNTED``.

    LeNet is a function of eight tensors, with an update for each. ResNet-18
    and "wide", six dense layers, are modules that SGD updates all at once.

    Example:
        >>> lenet = network("LeNet")
        >>> lenet.num_launches, sum(n for n, _ in lenet.gradients)
        (57, 516272)
    """
    check_known("network", name, COUNTED)
    file = resources.files("dpbook.formulas") / "data" / "networks.json"
    counted = json.loads(file.read_text(encoding="utf-8"))[name]
    parts = {part: [Counted(*o) for o in counted[part]] for part in PARTS}
    return CountedNetwork(
        **parts, gradients=[(n, at) for n, at in counted["gradients"]]
    )


class Phase(NamedTuple):
    """What a part of a step takes a host and a device, in seconds.

    The device computes in the order of launches. Three operations, a column
    each two microseconds; the second is launched late, the third waits::

        host     a  .  b  c
        device      A  .  BB BB C

        launching 8, computing 10, alone 14, launches 3
    """

    launching: float  #: until all is launched
    computing: float  #: of the device, without gaps
    alone: float  #: from the first launch on, if the device was idle
    launches: int  #: how many

    def end(self, issued: float, free: float) -> float:
        """Return when the device is done with this part of the step.

        The host begins to launch at ``issued``, and the device is free from
        ``free`` on; all in seconds.
        """
        return max(issued + self.alone, free + self.computing)


def phase(
    operations: Sequence[Counted],
    images: float,
    cluster: Cluster,
    in_backward: bool = False,
) -> Phase:
    """Return what operations take one after another, on one device.

    Args:
        operations: Those of a part of a step, in the order of their launches.
        images: The device's share of the batch.
        cluster: The device and its host.
        in_backward: Whether they are launched by autograd, which is quicker
            than Python.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> forward = network("LeNet").forward
        >>> found = phase(forward, 256, cluster(1, "v100-pcie"))
        >>> [round(1e6 * seconds) for seconds in found[:3]], found.launches
        ([128, 200, 208], 15)
    """
    launching = computing = alone = 0.0
    for o in operations:
        launching += cluster.host.issuing(
            launches=o.launches, views=o.views, in_backward=in_backward
        )
        taken = o.seconds(images, cluster)
        # It begins when it is launched and what came before is done.
        alone = max(launching, alone) + taken
        computing += taken
    launches = sum(o.launches for o in operations)
    return Phase(
        launching=launching,
        computing=computing,
        alone=alone,
        launches=launches,
    )
