"""The networks that the book plans for.

Source:
    book/_data/korthikanti2022.json for 22B to 1T; Llama 2's config.json
    (huggingface.co/TheBloke/Llama-2-7B-fp16, a7ac37e) for 7B; A. Grattafiori
    et al., The Llama 3 herd of models, 2024, arXiv:2407.21783, table 3, for
    70B and 405B; the config.json of Mixtral-8x22B-v0.1 for 8x22B.
"""

from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar, TypeAlias

from dpbook.formulas.transformer import RECOMPUTE, Transformer
from dpbook.planner.launches import LaunchCounts, Launches
from dpbook.planner.layouts import Layout
from dpbook.planner.work import Counts, ends_counts, layer_counts


class Planned(Transformer):
    """A transformer as a network of equal blocks, trained with Adam."""

    # A parameter has itself and two averages in float32.
    state_bytes: ClassVar[int] = 12
    most_micro_batch: ClassVar[int] = 16
    #: The fewest tokens that a device has of a sequence which it shares: as
    #: many as in the longest sequences of Llama 3. With fewer, messages would
    #: take longer than their attention hides (the chapter on long sequences).
    least_tokens: ClassVar[int] = 8192

    @property
    def num_blocks(self) -> int:
        """The number of layers."""
        return self.layers

    @property
    def recompute(self) -> tuple[str, ...]:
        """What backward may compute again, each a name of ``RECOMPUTE``.

        Kernels of plain modules and of experts are not counted for
        "selective".
        """
        return ("none", "full") if self.plain or self.experts else RECOMPUTE

    @property
    def most_tensor(self) -> int:
        """The largest tensor group; all others divide it.

        Its devices share the heads evenly, of queries and of keys::

            heads    heads of keys    groups
              64           64         1, 2, 4, 8, 16, 32, 64
              64            8         1, 2, 4, 8
              96           96         1, 2, 3, 4, 6, 8, 12, … 96
        """
        return gcd(self.heads, self.key_heads or self.heads)

    @property
    def most_context(self) -> int:
        """The most devices that the search lets share a sequence."""
        return max(1, self.sequence // self.least_tokens)

    def block(self, layout: Layout) -> Counts:
        """Return what a device computes and keeps for a layer."""
        return layer_counts(self, layout)

    def ends(self, layout: Layout) -> Counts:
        """Return the same for the embedding and the scores of the words."""
        return ends_counts(self, layout)


@dataclass(frozen=True)
class Convolutional:
    """A network of convolutions, as so many equal blocks, trained with SGD.

    Blocks that differ are taken as equal. What leaves a block is taken as
    large as the largest.
    """

    num_blocks: int  #: how many there are
    parameters: float  #: of all
    fast: float  #: flops of an example in fast convolutions
    other: float  #: those in all other convolutions
    #: The bytes that all other kernels move for an example.
    memory_traffic: float
    kept: float  #: the bytes that an example keeps for backward
    border: float  #: the bytes of an example between two blocks
    num_products: int  #: how many convolutions and products a step has
    num_kernels: int  #: how many other kernels
    launches: LaunchCounts  #: what the host issues for a micro-batch
    dtype: str = "float16"

    plain: ClassVar[bool] = False
    state_bytes: ClassVar[int] = 8  # itself and its momentum
    most_micro_batch: ClassVar[int] = 256
    most_tensor: ClassVar[int] = 1
    most_context: ClassVar[int] = 1
    experts: ClassVar[int] = 0
    recompute: ClassVar[tuple[str, ...]] = ("none",)

    def flops(self, num_examples: float) -> float:
        """Return the flops of a step, forward and backward."""
        return num_examples * (self.fast + self.other)

    def block(self, layout: Layout) -> Counts:
        """Return what a device computes and keeps for a block."""
        b = layout.micro_batch
        count = self.num_blocks
        return Counts(
            parameters=self.parameters / count,
            num_products=self.num_products // count,
            memory_traffic=b * self.memory_traffic / count,
            num_kernels=self.num_kernels // count,
            kept=b * self.kept / count,
            border=b * self.border,
            convolutions=(b * self.fast / count, b * self.other / count),
            launches=LaunchCounts(
                *(Launches(k / count, v / count) for k, v in self.launches)
            ),
        )

    def ends(self, _: Layout) -> Counts:
        """Return that nothing comes before or behind the blocks."""
        return Counts(0.0)


Network: TypeAlias = Planned | Convolutional


def _of_2022(*, layers: int, hidden: int, heads: int) -> Planned:
    return Planned(
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=51_200,
        sequence=2048,
        fused=False,
        dtype="float16",
    )


def _llama(
    *, layers: int, hidden: int, heads: int, inner: int, s: int, keys: int = 8
) -> Planned:
    return Planned(
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=32_000 if s == 4096 else 128_256,
        sequence=s,
        feed_forward=inner,
        key_heads=keys,
        gated=True,
        tied=False,
        dropout=False,
    )


NETWORKS: dict[str, Network] = {
    "ResNet-50": Convolutional(
        16,
        parameters=25.6e6,
        fast=9.02e9,
        other=15.27e9,
        memory_traffic=351e6,
        kept=44.2e6,
        border=1.61e6,
        num_products=160,
        num_kernels=584,
        launches=LaunchCounts(Launches(286, 105), Launches(406, 67)),
    ),
    "7B": _llama(
        layers=32, hidden=4096, heads=32, inner=11_008, s=4096, keys=32
    ),
    "70B": _llama(layers=80, hidden=8192, heads=64, inner=28_672, s=8192),
    "405B": _llama(layers=126, hidden=16_384, heads=128, inner=53_248, s=8192),
    "8x22B": replace(
        _llama(layers=56, hidden=6144, heads=48, inner=16_384, s=4096),
        experts=8,
        choices=2,
    ),
    "22B of 2022": _of_2022(layers=48, hidden=6144, heads=64),
    "175B of 2022": _of_2022(layers=96, hidden=12_288, heads=96),
    "530B of 2022": _of_2022(layers=105, hidden=20_480, heads=128),
    "1T of 2022": _of_2022(layers=128, hidden=25_600, heads=160),
}
