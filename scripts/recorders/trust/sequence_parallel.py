"""Layers split by features, and what is between them by rows.

Layer partitioning leaves norms, dropout and residuals whole. They work on each
row by itself, a position of a sequence. So each device can have some rows, and
the allreduce becomes two halves, with these between them::

           rows of r      all rows, features of r      rows of r
    x ─── norm ─ allgather ─ linear … linear ─ reduce-scatter ─ dropout ─── +
      └─────────────────────────────────────────────────────────────────────┘

Backward goes the other way: each of the two is the other's conjugate.

Source:
    V. Korthikanti et al., Reducing Activation Recomputation in Large
    Transformer Models, 2022, section 4.2.2.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from dpkit.collectives import allgather, reduce_scatter
from dpkit.layer_partition import (
    ColumnParallelLinear,
    Replicated,
    RowParallelLinear,
)
from dpkit.layer_partition.conjugates import conjugates


class SequenceParallelBranch(nn.Module):
    """A branch of a layer, and what goes past it, on rows of each device.

    It takes and gives shards (rows of r, features).

    Args:
        norm: A copy for each device.
        columns: The linear layer that begins the branch, split by outputs.
        between: What is done to the features of one device.
        rows: The linear layer that ends it, split by inputs.
        dropout: What is done to the sum of one device's rows.
        algorithm: That of the collectives, as for :func:`dpkit.allgather`.
    """

    def __init__(
        self,
        norm: Replicated,
        columns: ColumnParallelLinear,
        between: Callable[[Tensor], Tensor],
        rows: RowParallelLinear,
        dropout: Callable[[Tensor], Tensor],
        algorithm: str,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.columns = columns
        self.rows = rows
        self.between = between
        self.dropout = dropout
        self.algorithm = algorithm

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the shards plus what the branch makes of all of them."""
        wholes = conjugates(self.norm(xs), self._gathered, self._scattered)
        features = [
            self.between(part(x))
            for part, x in zip(self.columns.parts, wholes, strict=True)
        ]
        terms = [
            part(x) for part, x in zip(self.rows.parts, features, strict=True)
        ]
        sums = conjugates(terms, self._scattered, self._gathered)
        return [
            x + self.dropout(y + bias)
            for x, y, bias in zip(xs, sums, self.rows.biases, strict=True)
        ]

    def _gathered(self, shards: Sequence[Tensor]) -> list[Tensor]:
        """Return all rows on each device."""
        # Two devices, shards of 3 rows: each has room for 6, and puts its own
        # where they belong.
        count = len(shards)
        wholes = [x.new_empty(count * len(x), x.shape[1]) for x in shards]
        for rank, (whole, shard) in enumerate(zip(wholes, shards)):
            whole.tensor_split(count)[rank].copy_(shard)
        allgather(wholes, self.algorithm)
        return wholes

    def _scattered(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of each device, summed; the terms are used up."""
        parts = reduce_scatter(list(terms), algorithm=self.algorithm)
        width = terms[0].shape[1]
        return [part.view(-1, width).clone() for part in parts]
