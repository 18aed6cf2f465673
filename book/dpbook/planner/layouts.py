"""How a step may be cut: the layouts of a number of devices.

The devices are numbered with the tensor group inside, then those that share a
sequence, then the replicas, then the stages. 16 devices on nodes of 8, t = 2,
p = 2, once with d = 4 and once with c = 2, d = 2::

    c = 1   stage 0   replica 0: 0 1    1: 2 3    2: 4 5    3: 6 7    node 0
            stage 1   replica 0: 8 9    1: 10 11  2: 12 13  3: 14 15  node 1

    c = 2   stage 0   replica 0: 0 1 2 3          1: 4 5 6 7          node 0
            stage 1   replica 0: 8 9 10 11        1: 12 13 14 15      node 1

With c = 2, devices 0 and 1 have pieces 0 and 3 of the four pieces of each
sequence, head and tail, and devices 2 and 3 have pieces 1 and 2. All devices
of a stage have the weights of its layers, a t-th of each matrix: they add up
their gradients, and ZeRO divides over them. Experts alone are otherwise on the
same devices (``planner.experts``).
"""

from collections.abc import Iterator
from itertools import product
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
    context: int = 1  #: devices that share each sequence, c
    #: What becomes of the inputs that a device has gathered from others for
    #: its layers: one of ``transformer.GATHERED``.
    gathered: str = "again"
    #: Sets of ``expert_tensor`` devices that have all experts of a layer
    #: together, e.
    expert: int = 1
    #: Devices that share an expert, one or a tensor group, u.
    expert_tensor: int = 1

    @property
    def num_devices(self) -> int:
        """How many devices it takes, data × context × tensor × pipeline."""
        return self.num_copies * self.tensor * self.pipeline

    @property
    def num_copies(self) -> int:
        """How many devices have the same weights, but those of experts.

        They are those of all replicas, data × context of them. They add up
        their gradients, and ZeRO divides over them.
        """
        return self.data * self.context

    @property
    def expert_copies(self) -> int:
        """How many devices have the same experts, for other tokens."""
        devices = self.num_copies * self.tensor
        return devices // (self.expert * self.expert_tensor)

    @property
    def cut(self) -> tuple[int, ...]:
        """Sizes d, t, p, c, e and u, which say how many devices do what."""
        experts = self.expert, self.expert_tensor
        return self.data, self.tensor, self.pipeline, self.context, *experts

    @property
    def words_of_cut(self) -> str:
        """The cut as text, d × t × p, and c, e and u where they are not 1."""
        others = {"c": self.context, "e": self.expert, "u": self.expert_tensor}
        shared = "".join(f", {k} = {v}" for k, v in others.items() if v > 1)
        return f"{self.data} × {self.tensor} × {self.pipeline}{shared}"

    def __str__(self) -> str:
        chunks = f", v = {self.chunks}" if self.chunks > 1 else ""
        rest = f"recompute {self.recompute}, ZeRO-{self.zero}"
        cut = f"{self.words_of_cut}{chunks}"
        return f"{cut}, micro-batches of {self.micro_batch}, {rest}"


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number, up to some size.

    Example:
        >>> divisors(12, most=5)
        [1, 2, 3, 4]
    """
    return [i for i in range(1, min(number, most) + 1) if number % i == 0]


def all_layouts(
    *,
    num_devices: int,
    batch: int,
    blocks: int,
    most_tensor: int,
    most_micro_batch: int,
    recompute: tuple[str, ...],
    most_context: int = 1,
    experts: int = 0,
) -> Iterator[Layout]:
    """Yield the layouts of a step.

    ZeRO-3 is tried without a pipeline only. With one, it would gather the
    weights of a stage again for each micro-batch.

    Args:
        num_devices: How many there are, all of them used.
        batch: The examples of a step, over all devices.
        blocks: Those of the network, one at least for each stage.
        most_tensor: The largest tensor group that there may be. A group
            divides it, and the devices.
        most_micro_batch: The most examples of a micro-batch.
        recompute: What backward may compute again, such as ("none", "full").
        most_context: The most devices that may share a sequence. Their number
            is a power of two.
        experts: Those of a layer, which groups of devices divide.
    """
    common = gcd(num_devices, most_tensor)
    for t in divisors(common, common):
        for p in divisors(num_devices // t, blocks):
            copies = num_devices // t // p
            divisions = _divisions(copies, t, p, experts)
            for c in _contexts(copies, batch, most_context):
                d = copies // c
                for b in divisors(batch // d, most_micro_batch):
                    chunks = _chunks(p, batch // d // b, blocks)
                    for v, again, (e, u, zero) in product(
                        chunks, recompute, divisions
                    ):
                        yield Layout(
                            data=d,
                            tensor=t,
                            pipeline=p,
                            micro_batch=b,
                            chunks=v,
                            recompute=again,
                            zero=zero,
                            context=c,
                            expert=e,
                            expert_tensor=u,
                        )


def _contexts(copies: int, batch: int, most: int) -> list[int]:
    """Return how many of the devices of all replicas may share a sequence.

    The replicas that are left divide the batch.
    """
    powers = (2**i for i in range(most.bit_length()))
    return [
        c for c in powers if copies % c == 0 and batch % (copies // c) == 0
    ]


def _divisions(
    copies: int, t: int, p: int, experts: int
) -> list[tuple[int, int, int]]:
    """Return how parameters may be divided: e, u and the stage of ZeRO.

    ZeRO divides nothing if no two devices have the same.

    Args:
        copies: The devices that have the same parameters, except experts.
        t: Those of a tensor group.
        p: The stages.
        experts: Those of a layer; 0: there are none.
    """
    groups = [(1, 1)]
    if experts:
        groups = [
            (e, u)
            for u in sorted({1, t})
            for e in divisors(experts, copies * t // u)
            if copies * t % (e * u) == 0
        ]
    found = []
    for e, u in groups:
        most = max(copies, copies * t // (e * u)) if experts else copies
        stages = 1 if most == 1 else 3 if p > 1 else 4
        found += [(e, u, zero) for zero in range(stages)]
    return found


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
