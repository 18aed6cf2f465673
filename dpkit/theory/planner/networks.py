"""The networks that the book plans for.

Source:
    Korthikanti et al., 2022, table 3, for 22B to 1T; H. Touvron et al., Llama
    2, 2023, arXiv:2307.09288, for 7B; A. Grattafiori et al., The Llama 3 herd
    of models, 2024, arXiv:2407.21783, table 3, for 70B and 405B.
"""

from dataclasses import dataclass

from dpkit.theory.planner.layouts import Layout
from dpkit.theory.planner.work import (
    Counts,
    Network,
    ends_counts,
    layer_counts,
)
from dpkit.theory.transformer import RECOMPUTE, Transformer


class Planned(Transformer):
    """A transformer as a network of equal blocks, trained with Adam."""

    state_bytes = 12  # of a parameter: itself and two averages in float32

    @property
    def num_blocks(self) -> int:
        """The layers."""
        return self.layers

    @property
    def recompute(self) -> tuple[str, ...]:
        """The ways that differ: fused attention is selective by itself."""
        return ("none", "full") if self.fused else RECOMPUTE

    @property
    def most_tensor(self) -> int:
        """The heads of keys: each device has one at least."""
        return self.key_heads or self.heads

    def block(self, layout: Layout) -> Counts:
        """Return what a device does for a layer."""
        return layer_counts(self, layout)

    def ends(self, layout: Layout) -> Counts:
        """Return what it does for embedding and words."""
        return ends_counts(self, layout)


def _of_2022(layers: int, hidden: int, heads: int) -> Planned:
    sizes = layers, hidden, heads, 51_200, 2048
    return Planned(*sizes, fused=False, dtype="float16")


def _llama(
    layers: int, hidden: int, heads: int, inner: int, s: int, keys: int = 8
) -> Planned:
    words = 32_000 if s == 4096 else 128_256
    sizes = layers, hidden, heads, words, s, inner, keys
    return Planned(*sizes, gated=True, tied=False, dropout=False)


NETWORKS: dict[str, Network] = {
    "7B": _llama(32, 4096, 32, 11_008, 4096, keys=32),
    "70B": _llama(80, 8192, 64, 28_672, 8192),
    "405B": _llama(126, 16_384, 128, 53_248, 8192),
    "22B of 2022": _of_2022(48, 6144, 64),
    "175B of 2022": _of_2022(96, 12_288, 96),
    "530B of 2022": _of_2022(105, 20_480, 128),
    "1T of 2022": _of_2022(128, 25_600, 160),
}
