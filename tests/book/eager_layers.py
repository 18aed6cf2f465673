"""Layers of transformers, as plain modules of eager PyTorch.

Their launches are those that ``dpbook.planner.launches`` counts.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * y.to(x.dtype)


def heads_of(x: Tensor, size: int) -> Tensor:
    """(batch, length, width) -> (batch, heads, length, size)."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of numbers by angles that grow with the position."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaLayer(nn.Module):
    """RMSNorm, rotary positions, fused attention, and SwiGLU."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.size = width // heads
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))
        self.qkvo = nn.ModuleList(
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (
            nn.Linear(width, inner, bias=False) for _ in range(2)
        )
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norms[0](x)
        query, key, value, out = self.qkvo
        q, k = (
            rotated(heads_of(part(y), self.size), cos, sin)
            for part in (query, key)
        )
        v = heads_of(value(y), self.size)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))

    def mlp(self, y: Tensor) -> Tensor:
        """Return what SwiGLU makes of tokens."""
        made: Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return made


class ExpertsLayer(LlamaLayer):
    """The same with two experts, equally busy, each token going to both.

    All experts are computed by one kernel for each of their products.
    """

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__(width, heads, inner)
        del self.gate, self.up, self.down
        self.router = nn.Linear(width, 2, bias=False)
        self.gates, self.ups = (
            nn.Parameter(torch.empty(2, width, inner)) for _ in range(2)
        )
        self.downs = nn.Parameter(torch.empty(2, inner, width))

    def mlp(self, y: Tensor) -> Tensor:
        """Return what the experts make of tokens."""
        x = y.flatten(0, 1)
        weight, expert = self.router(x).float().softmax(-1).topk(2)
        weight = (weight / weight.sum(1, keepdim=True)).to(x.dtype).flatten()
        order = expert.flatten().argsort(stable=True)
        token = order // 2
        rows = x[token].unflatten(0, (2, -1))
        inside = F.silu(rows @ self.gates) * (rows @ self.ups)
        made = (inside @ self.downs).flatten(0, 1)
        made = made * weight[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, token, made).view_as(y)


class GptLayer(nn.Module):
    """LayerNorm, attention in one kernel or in several, GELU, dropout."""

    def __init__(
        self, width: int, heads: int, inner: int, fused: bool = True
    ) -> None:
        super().__init__()
        self.size, self.fused = width // heads, fused
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        y = self._attend(*(heads_of(part, self.size) for part in parts))
        y = self.out(y.transpose(1, 2).flatten(2))
        x = x + F.dropout(y, 0.1)
        y = self.down(F.gelu(self.up(self.norms[1](x))))
        return x + F.dropout(y, 0.1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        # Scale, mask and softmax are one kernel in Megatron-LM.
        weights = F.softmax(q @ k.transpose(-2, -1), -1)
        return F.dropout(weights, 0.1) @ v
