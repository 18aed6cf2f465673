"""How a step may be cut: the layouts of a number of devices.

The devices are numbered with the tensor group inside, then the replicas, then
the stages. 16 devices, t = 2, d = 4, p = 2, on nodes of 8::

    stage 0   replica 0: 0 1    1: 2 3    2: 4 5    3: 6 7      node 0
    stage 1   replica 0: 8 9    1: 10 11  2: 12 13  3: 14 15    node 1
"""

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

MOST_CHUNKS = 16  # stages of a device


class Layout(NamedTuple):
    """How a step is cut.

    Example:
        >>> layout = Layout(128, 8, 16, chunks=8)
        >>> print(layout)
        128 × 8 × 16, v = 8, micro-batches of 1, recompute none, ZeRO-1
        >>> layout.num_devices
        16384
    """

    data: int  #: replicas, d
    tensor: int = 1  #: devices that share each layer, t
    pipeline: int = 1  #: devices that have the layers one after another, p
    micro_batch: int = 1  #: examples that go through together
    chunks: int = 1  #: stages of each device, v; more than one is interleaved
    recompute: str = "none"  #: one of ``transformer.RECOMPUTE``
    zero: int = 1  #: the stage of ZeRO, 0 to 3
    sequence_parallel: bool = True  #: as in ``Transformer.kept_bytes``
    #: Whether messages between stages and replicas overlap with the
    #: arithmetic where they can.
    overlap: bool = True

    @property
    def num_devices(self) -> int:
        """How many devices it takes, data × tensor × pipeline of them."""
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        cut = f"{self.data} × {self.tensor} × {self.pipeline}"
        chunks = f", v = {self.chunks}" if self.chunks > 1 else ""
        rest = f"recompute {self.recompute}, ZeRO-{self.zero}"
        return f"{cut}{chunks}, micro-batches of {self.micro_batch}, {rest}"


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number, up to some size.

    Example:
        >>> divisors(12, most=5)
        [1, 2, 3, 4]
    """
    return [i for i in range(1, min(number, most) + 1) if number % i == 0]


def all_layouts(
    num_devices: int,
    batch: int,
    blocks: int,
    most_tensor: int,
    most_micro_batch: int,
    recompute: tuple[str, ...],
) -> Iterator[Layout]:
    """Yield the layouts of a step.

    ZeRO-3 goes without a pipeline alone, where it would gather weights again
    and again.

    Args:
        num_devices: How many there are, all of them used.
        batch: The examples of a step, over all devices.
        blocks: Those of the network, one at least for each stage.
        most_tensor: The largest tensor group that there may be. A group
            divides it, and the devices.
        most_micro_batch: The most examples of a micro-batch.
        recompute: What backward may compute again, such as ("none", "full").
    """
    common = gcd(num_devices, most_tensor)
    for t in divisors(common, common):
        for p in divisors(num_devices // t, blocks):
            d = num_devices // t // p
            for b in divisors(
                0 if batch % d else batch // d, most_micro_batch
            ):
                stages = range(1 if d == 1 else 3 if p > 1 else 4)
                for v in _chunks(p, batch // d // b, blocks):
                    for again in recompute:
                        for zero in stages:
                            yield Layout(
                                data=d,
                                tensor=t,
                                pipeline=p,
                                micro_batch=b,
                                chunks=v,
                                recompute=again,
                                zero=zero,
                            )


def _chunks(p: int, num_micro_batches: int, blocks: int) -> list[int]:
    """Return how many stages a device may have: those that leave few idle."""
    # Interleaving goes round in groups of p micro-batches. 126 layers, p = 16:
    # v = 1, 2, 4, 8 have 8 layers on the fullest device, v = 3 has 9.
    if p == 1 or num_micro_batches % p:
        return [1]
    least = -(-blocks // p)
    most = min(MOST_CHUNKS, least)
    return [
        v for v in range(1, most + 1) if -(-blocks // (p * v)) * v == least
    ]
