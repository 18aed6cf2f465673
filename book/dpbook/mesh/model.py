"""A Llama on one device: plain PyTorch, which knows nothing of ranks.

::

    tokens (b, s)
      │ embedding
      ▼
    x (b, s, width) ──┬─ norm ─ attention ─ + ──┬─ norm ─ SwiGLU ─ + ──▶ …
                      └─────────────────────┘   └──────────────────┘
                      ╰──────────── a block, so many times ────────╯
      │ norm, head
      ▼
    scores (b, s, vocabulary)

Source:
    H. Touvron et al., LLaMA: open and efficient foundation language models,
    2023, arXiv:2302.13971; J. Su et al., RoFormer, 2021, arXiv:2104.09864, for
    rotary positions; J. Ainslie et al., GQA, 2023, arXiv:2305.13245, for
    grouped queries; N. Shazeer, GLU variants improve transformer, 2020,
    arXiv:2002.05202, for SwiGLU.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

THETA = 10_000.0  # the slowest pair of numbers turns once in 2π · THETA


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, and of the sequences that it reads."""

    vocabulary: int = 64
    width: int = 64  #: the numbers of a token
    blocks: int = 4
    heads: int = 16  #: of queries
    key_heads: int = 8  #: of keys, and of values
    inner: int = 128  #: the numbers of a token inside of SwiGLU
    length: int = 32  #: the tokens of a sequence

    @property
    def head_size(self) -> int:
        """The numbers of a head."""
        return self.width // self.heads


class Rotary(nn.Module):
    """Turns pairs of numbers by angles that grow with the position."""

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.shape = sizes.length, sizes.head_size // 2
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(self.shape), False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the angle of each position and pair.

        The CPU does, wherever the model is: the last bits of a GPU's sines
        are others, and the layouts would differ by them.
        """
        positions, pairs = (torch.arange(n, device="cpu") for n in self.shape)
        speeds = THETA ** (-pairs / self.shape[1])
        angles = positions[:, None] * speeds
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        """Return (b, heads, s, size) of the same; position i is row i."""
        cos = self.cos[: x.shape[2]].to(x.dtype)
        sin = self.sin[: x.shape[2]].to(x.dtype)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = a * cos - b * sin, a * sin + b * cos
        return torch.stack(turned, -1).flatten(-2)


class Attention(nn.Module):
    """Causal attention; several heads of queries share keys and values."""

    def __init__(self, sizes: Sizes, rotary: Rotary) -> None:
        super().__init__()
        self.head_size = sizes.head_size
        self.sharing = sizes.heads // sizes.key_heads
        self.rotary = rotary
        few = sizes.key_heads * sizes.head_size
        self.q = nn.Linear(sizes.width, sizes.width, bias=False)
        self.k = nn.Linear(sizes.width, few, bias=False)
        self.v = nn.Linear(sizes.width, few, bias=False)
        self.o = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (b, s, width) of the same."""
        # (b, s, heads * size) -> (b, heads, s, size), however many heads
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        q, k = self.rotary(q), self.rotary(k)
        k, v = (t.repeat_interleave(self.sharing, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o(y.transpose(1, 2).flatten(2))
        return out


class SwiGLU(nn.Module):
    """Two products side by side, one a gate of the other, and a third."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.up = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (b, s, width) of the same."""
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Block(nn.Module):
    """Attention and SwiGLU, each added to its normed input."""

    def __init__(self, sizes: Sizes, rotary: Rotary) -> None:
        super().__init__()
        self.recompute = False  # forward once more in backward
        self.attention_norm = nn.RMSNorm(sizes.width, 1e-5)
        self.attention = Attention(sizes, rotary)
        self.mlp_norm = nn.RMSNorm(sizes.width, 1e-5)
        self.mlp = SwiGLU(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Return (b, s, width) of the same."""
        if self.recompute:
            out: Tensor = checkpoint(self._compute, x, use_reentrant=False)
            return out
        return self._compute(x)

    def _compute(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Llama(nn.Module):
    """Some blocks in a row, or all of them.

    The first block comes with the embedding, the last one with the head. So a
    stage of a pipeline is this class, with fewer blocks; a block has the same
    name in each.

    Args:
        sizes: Those of the whole model.
        blocks: The numbers of the blocks. None: all.
    """

    def __init__(self, sizes: Sizes, blocks: range | None = None) -> None:
        super().__init__()
        numbers = range(sizes.blocks) if blocks is None else blocks
        first, last = 0 in numbers, sizes.blocks - 1 in numbers
        width, vocabulary = sizes.width, sizes.vocabulary
        self.rotary = Rotary(sizes)
        self.embedding = nn.Embedding(vocabulary, width) if first else None
        self.blocks = nn.ModuleDict(
            {str(i): Block(sizes, self.rotary) for i in numbers}
        )
        self.norm = nn.RMSNorm(width, 1e-5) if last else None
        self.head = nn.Linear(width, vocabulary, bias=False) if last else None

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (b, s, vocabulary) of tokens (b, s).

        Without the first block it takes (b, s, width), and without the last
        one it returns that.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss over the positions of scores (b, s, vocabulary)."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())
