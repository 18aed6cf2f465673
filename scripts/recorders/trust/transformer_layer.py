"""A layer of a large transformer, split as it was trained.

Each device has a part of attention and of the linear layers, and a copy of
the rest. All numbers are float16. Two halves follow each other::

    x ─── norm ── attention ─────────────── dropout ─── + ───
      └─────────────────────────────────────────────────┘
      ─── norm ── linear ── GELU ── linear ── dropout ─── + ───
      └───────────────────────────────────────────────────┘

Attention is that of its time, one operation after another: the scores of all
pairs of positions, softmax, dropout, and sums of values by these weights.
Fused attention does all that in one kernel, and writes no scores.

Source:
    V. Korthikanti et al., Reducing Activation Recomputation in Large
    Transformer Models, 2022, for the order and for what is computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dpkit.layer_partition import (
    HeadParallelAttention,
    ParallelMLP,
    Replicated,
    Residual,
)
from recorders.trust.sequence_parallel import SequenceParallelBranch

SEQUENCE = 2048
DROPOUT = 0.1
DTYPE = torch.float16
LIBRARY = "library"  # the algorithm of all allreduces: one launch each
# Its kernels move as many bytes as those of a fused softmax, in backward too,
# where PyTorch's own softmax needs a second kernel. Its values are others.
AS_FUSED_SOFTMAX = torch.log_softmax


@dataclass(frozen=True)
class Shape:
    """The size of a layer, and of what goes through it.

    Attributes:
        heads: How many heads the attention has.
        hidden: How many features a position has.
        micro_batch: How many sequences of 2048 positions go through it.
        num_devices: How many devices have a part of it.
    """

    heads: int
    hidden: int
    micro_batch: int
    num_devices: int = 8


def split_parts(
    shape: Shape,
    owners: Sequence[torch.device],
    fused: bool = False,
    recompute: str = "none",
) -> tuple[HeadParallelAttention, ParallelMLP]:
    """Return attention and the linear layers, split over devices.

    Args:
        shape: The sizes of a layer.
        owners: The devices. Each has a part of both.
        fused: Whether attention is one kernel.
        recompute: With "selective", backward computes attention again.
            Fused attention keeps no scores anyway.
    """
    hidden = shape.hidden
    with owners[0]:
        attention = nn.MultiheadAttention(
            hidden, shape.heads, batch_first=True, dtype=DTYPE
        )
        first = nn.Linear(hidden, 4 * hidden, dtype=DTYPE)
        second = nn.Linear(4 * hidden, hidden, dtype=DTYPE)
    mlp = ParallelMLP(first, nn.GELU(), second, owners, LIBRARY)
    if fused:
        return HeadParallelAttention(attention, owners, True, LIBRARY), mlp
    return PlainAttention(attention, owners, recompute == "selective"), mlp


def norm_of(shape: Shape, owners: Sequence[torch.device]) -> Replicated:
    """Return a layer norm, of which each device has a copy."""
    norm = nn.LayerNorm(shape.hidden, dtype=DTYPE, device=owners[0])
    return Replicated(norm, owners)


def replicas_layer(
    shape: Shape,
    owners: Sequence[torch.device],
    heads: HeadParallelAttention,
    mlp: ParallelMLP,
) -> nn.Module:
    """Return the layer in which each device has all rows between its parts.

    It takes and gives replicas of shape (b, s, hidden).

    Args:
        shape: The sizes of the layer.
        owners: The devices.
        heads: Attention, split over them.
        mlp: The linear layers, split over them.
    """
    branches = [
        nn.Sequential(norm_of(shape, owners), part, Dropout())
        for part in (heads, mlp)
    ]
    return nn.Sequential(*map(Residual, branches))


def rows_layer(
    shape: Shape,
    owners: Sequence[torch.device],
    heads: HeadParallelAttention,
    mlp: ParallelMLP,
) -> nn.Module:
    """Return the layer in which each device has some of the rows there.

    It takes and gives shards of shape (b · s / k, hidden), for k devices.

    Args:
        shape: The sizes of the layer.
        owners: The devices.
        heads: Attention, split over them.
        mlp: The linear layers, split over them.
    """

    def attend(rows: Tensor) -> Tensor:
        sequences = rows.unflatten(0, (shape.micro_batch, -1))
        return heads._attend(sequences).flatten(0, 1)

    first, _, second = mlp
    branches: list[tuple[Any, Any, Any]] = [
        (heads.project, attend, heads.output),
        (first, nn.functional.gelu, second),
    ]
    norms = [norm_of(shape, owners) for _ in branches]
    return nn.Sequential(
        *[
            SequenceParallelBranch(norm, *branch, dropped, LIBRARY)
            for norm, branch in zip(norms, branches, strict=True)
        ]
    )


class PlainAttention(HeadParallelAttention):
    """Attention of which each device computes some heads, kernel by kernel.

    No position is masked here. Where the steps were measured, the kernel of
    the softmax did that too; it reads the scores and writes the weights once,
    and backward is as frugal. ``AS_FUSED_SOFTMAX`` stands for it.
    """

    def __init__(
        self,
        attention: nn.MultiheadAttention,
        owners: Sequence[torch.device],
        selective: bool,
    ) -> None:
        super().__init__(attention, owners, algorithm=LIBRARY)
        self.selective = selective

    def _attend(self, projected: Tensor) -> Tensor:
        """Return the heads of one device, (b, s, heads · size)."""
        by_head = projected.unflatten(2, (-1, 3, self.head_size))
        # (b, s, heads, 3, size) -> three of (b, heads, s, size)
        q, k, v = by_head.permute(3, 0, 2, 1, 4).unbind(0)
        core = again if self.selective else _call
        y: Tensor = core(_weigh, q, k, v)
        return y.transpose(1, 2).flatten(2)


def _weigh(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the sums of values, weighted by the softmax of scores."""
    scaled = q / q.shape[3] ** 0.5
    weights = AS_FUSED_SOFTMAX(scaled @ k.transpose(2, 3), dim=3)
    return dropped(weights) @ v


def _call(run: Callable[..., Any], *xs: Tensor) -> Any:
    return run(*xs)


class Dropout(nn.Module):
    """Dropout on each device by itself."""

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors with some of their numbers gone."""
        return [dropped(x) for x in xs]


def dropped(x: Tensor) -> Tensor:
    """Return ``x`` after the one kernel that dropout is on a GPU."""
    y: Tensor = torch.native_dropout(x, DROPOUT, True)[0]
    return y


def again(run: Callable[..., Any], *xs: Tensor) -> Any:
    """Run, keep the inputs alone, and run all of it again in backward."""
    with set_checkpoint_early_stop(False):
        return checkpoint(
            run, *xs, use_reentrant=False, preserve_rng_state=False
        )
