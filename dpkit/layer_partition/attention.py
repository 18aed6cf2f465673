"""Attention of which every device computes some of the heads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.layer_partition.linear import (
    ColumnParallelLinear,
    RowParallelLinear,
)
from dpkit.layer_partition.shards import (
    Pick,
    SplitModule,
    check_enough,
    check_plain,
    even_sizes,
)

PLAIN_ATTENTION: dict[str, object] = {
    "batch_first": True,
    "dropout": 0.0,
    "bias_k": None,
    "add_zero_attn": False,
}


class HeadParallelAttention(SplitModule):
    """Self-attention of which each device computes some of the heads.

    A head needs the queries, keys and values of itself alone. So their
    projections are split by columns, head by head, and the projection of the
    output by rows: it takes and gives replicas, with one allreduce forward
    and one backward.

    Args:
        attention: The layer to split, with ``batch_first=True``; its
            parameters are copied.
        devices: k devices, no more than the layer has heads.
        causal: Whether a position sees only those up to its own.

    Attributes:
        project: Queries, keys and values: rows of head 0, of head 1, …
        output: The projection of the output.

    Raises:
        TypeError: ``devices`` is no list.
        ValueError: there are more devices than heads, or the layer is of a
            kind that is not split here.

    Example:
        >>> from dpkit.layer_partition import HeadParallelAttention
        >>> devices = dpkit.devices(2, kind="sim")
        >>> attention = torch.nn.MultiheadAttention(12, 3, batch_first=True)
        >>> layer = HeadParallelAttention(attention, devices)
        >>> [part.out_features for part in layer.project.parts]
        [24, 12]

    Source:
        M. Shoeybi et al., Megatron-LM, 2019, section 3.
    """

    def __init__(
        self,
        attention: nn.MultiheadAttention,
        devices: Sequence[torch.device],
        causal: bool = False,
    ) -> None:
        super().__init__()
        plain = {"kdim": attention.embed_dim, "vdim": attention.embed_dim}
        check_plain(attention, "attention", PLAIN_ATTENTION | plain)
        num_heads, size = attention.num_heads, attention.head_dim
        check_enough(num_heads, "heads", devices)
        heads = even_sizes(num_heads, len(devices))
        self.project = ColumnParallelLinear(
            _by_head(attention), devices, [3 * size * n for n in heads]
        )
        self.output = RowParallelLinear(
            attention.out_proj, devices, [size * n for n in heads]
        )
        self.head_size, self.causal = size, causal

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return replicas (b, s, features) of replicas of that shape."""
        heads = [self._attend(x) for x in self.project(xs)]
        ys: list[Tensor] = self.output(heads)
        return ys

    def _attend(self, projected: Tensor) -> Tensor:
        """Return the heads of one device, (b, s, heads · size)."""
        by_head = projected.unflatten(2, (-1, 3, self.head_size))
        # (b, s, heads, 3, size) -> three of (b, heads, s, size)
        q, k, v = by_head.permute(3, 0, 2, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return y.transpose(1, 2).flatten(2)

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return what is picked, joined, by nn.MultiheadAttention's names."""
        full = {
            f"out_proj.{name}": tensor
            for name, tensor in self.output.full_tensors(pick).items()
        }
        for name, tensor in self.project.full_tensors(pick).items():
            by_head = tensor.unflatten(0, (-1, 3, self.head_size))
            full[f"in_proj_{name}"] = by_head.transpose(0, 1).flatten(0, 2)
        return full


def _by_head(attention: nn.MultiheadAttention) -> nn.Linear:
    """Return a layer for queries, keys and values, rows in order of heads."""
    # Rows of in_proj_weight with two heads    q0 q1 k0 k1 v0 v1
    # and of the layer                         q0 k0 v0 q1 k1 v1
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    shape = (3, attention.num_heads, attention.head_dim)
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    for name, tensor in {"weight": weight, "bias": bias}.items():
        if tensor is not None:
            rows = tensor.detach().unflatten(0, shape)
            rows = rows.transpose(0, 1).flatten(0, 2)
            parameter = nn.Parameter(rows, tensor.requires_grad)
            linear.register_parameter(name, parameter)
    return linear
