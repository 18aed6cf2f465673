"""What is before the layers of a transformer, and what is behind them.

Both are split by words, like the layers in ``transformer`` by features.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.layer_partition import (
    ColumnParallelLinear,
    Replicated,
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
)
from recorders.trust.transformer import Passes, pass_seconds, simulated
from recorders.trust.transformer_layer import (
    DTYPE,
    LIBRARY,
    SEQUENCE,
    Shape,
    dropped,
    norm_of,
)

WORDS = 51200


def first_seconds(shape: Shape, accumulates: bool) -> Passes:
    """Return the seconds of the embeddings of words and of positions."""
    with simulated(shape) as owners:
        with owners[0]:
            table = nn.Embedding(WORDS, shape.hidden, dtype=DTYPE)
            positions = nn.Embedding(SEQUENCE, shape.hidden, dtype=DTYPE)
        of_words = VocabParallelEmbedding(table, owners, LIBRARY)
        of_positions = Replicated(positions, owners)

        def run(*tokens: Tensor) -> list[Tensor]:
            rows = [token[:1] for token in tokens]
            pairs = zip(of_words(tokens), of_positions(rows), strict=True)
            return [dropped(x + y) for x, y in pairs]

        return pass_seconds(run, _words(shape, owners), accumulates)


def last_seconds(shape: Shape, accumulates: bool) -> Passes:
    """Return the seconds of the last norm, of all words' scores, of the loss.

    The loss is computed in float32.
    """
    with simulated(shape) as owners:
        with owners[0]:
            scores = nn.Linear(shape.hidden, WORDS, bias=False, dtype=DTYPE)
        head = nn.Sequential(
            norm_of(shape, owners),
            ColumnParallelLinear(scores, owners, algorithm=LIBRARY),
        )
        targets = [tokens.flatten() for tokens in _words(shape, owners)]

        def run(*xs: Tensor) -> list[Tensor]:
            shards = [y.flatten(0, 1).float() for y in head(xs)]
            return vocab_parallel_cross_entropy(shards, targets, LIBRARY)

        size = shape.micro_batch, SEQUENCE, shape.hidden
        xs = [torch.empty(size, dtype=DTYPE, device=d) for d in owners]
        return pass_seconds(run, xs, accumulates)


def _words(shape: Shape, owners: Sequence[torch.device]) -> list[Tensor]:
    size = shape.micro_batch, SEQUENCE
    return [torch.empty(size, dtype=torch.long, device=d) for d in owners]
