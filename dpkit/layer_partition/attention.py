"""Attention of which every device computes some of the heads."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.arguments import Devices
from dpkit.layer_partition.linear import (
    ColumnParallelLinear,
    RowParallelLinear,
    linear_of,
)
from dpkit.layer_partition.shards import (
    Pick,
    SplitModule,
    check_layer,
    check_plain,
    checked_sizes,
)
from dpkit.units import check_flag

PLAIN_ATTENTION: dict[str, object] = {
    "batch_first": True,
    "dropout": 0.0,
    "bias_k": None,
    "add_zero_attn": False,
}


class HeadParallelAttention(SplitModule):
    """Self-attention of which each device computes some of the heads.

    A head needs the queries, keys and values of itself alone. So their
    projections, ``project``, are split by columns, head by head, and that of
    the ``output`` by rows. It takes and gives replicas, with one allreduce
    forward and one backward.

    Args:
        attention: The layer whose parameters are copied. It needs
            ``batch_first=True``.
        devices: k devices, each of which gets a head or more.
        causal: Whether a position sees only those up to its own.
        algorithm: That of the allreduces, as for :func:`dpkit.allreduce`.

    Raises:
        ValueError: the layer has other options, or fewer heads than devices.

    Example:
        >>> from dpkit.layer_partition import HeadParallelAttention
        >>> attention = nn.MultiheadAttention(12, 3, batch_first=True)
        >>> layer = HeadParallelAttention(attention, dpkit.devices(2, "sim"))
        >>> [part.out_features for part in layer.project.parts]
        [24, 12]

    Source:
        M. Shoeybi et al., Megatron-LM, 2019, section 3.
    """

    def __init__(
        self,
        attention: nn.MultiheadAttention,
        devices: Devices,
        causal: bool = False,
        algorithm: str = "ring",
    ) -> None:
        super().__init__()
        kind = nn.MultiheadAttention
        check_layer("attention", attention, kind, devices, algorithm)
        check_flag("causal", causal)
        plain = {"kdim": attention.embed_dim, "vdim": attention.embed_dim}
        check_plain(attention, "attention", PLAIN_ATTENTION | plain)
        size = attention.head_dim
        heads = checked_sizes(None, attention.num_heads, "heads", devices)
        self.project = ColumnParallelLinear(
            _by_head(attention),
            devices,
            [3 * size * n for n in heads],
            algorithm,
        )
        self.output = RowParallelLinear(
            attention.out_proj, devices, [size * n for n in heads], algorithm
        )
        self.head_size = size
        self.causal = causal

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
    shape = (3, attention.num_heads, attention.head_dim)

    def rows(tensor: nn.Parameter) -> nn.Parameter:
        by_kind = tensor.detach().unflatten(0, shape)
        by_head = by_kind.transpose(0, 1).flatten(0, 2)
        return nn.Parameter(by_head, tensor.requires_grad)

    bias = attention.in_proj_bias
    return linear_of(
        rows(attention.in_proj_weight), None if bias is None else rows(bias)
    )
