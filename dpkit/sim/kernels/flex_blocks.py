"""The blocks of a mask of FlexAttention: which scores its kernel computes.

A ``BlockMask`` lists for each block of queries the blocks of keys that they
see, in part or whole. Here the lists are a table of numbers, for 300 queries
and keys in blocks of 128, where queries see their past::

    1 . .      .   the kernel leaves the block out
    2 1 .      1   it computes the block, and asks ``mask_mod``
    2 2 1      2   it computes the block, and asks nothing

The values are computed piece by piece, so that the scores of a long sequence
are never in the memory of this machine at once.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpkit.sim.memory.small_integers import values_of
from dpkit.sim.tensors.behaviour import plain

_OUT, _PARTLY, _WHOLE = range(3)
BLOCK = 128  # the queries and keys of a block where there is no mask
MOST_SCORES = 2**25  # of a piece


class Blocks(NamedTuple):
    """Which blocks are computed.

    Attributes:
        table: Of shape (b or 1, heads or 1, blocks of queries, of keys).
        queries: How many queries a block has.
        keys: How many keys it has.
    """

    table: Tensor
    queries: int
    keys: int

    def num_scores(self, num_heads: int) -> int | None:
        """Return how many scores are computed; None: nobody knows.

        Args:
            num_heads: The heads of all examples.
        """
        known = values_of(plain(self.table))
        if known is None:
            return None
        blocks = int((known != _OUT).sum())
        same = num_heads // prod(self.table.shape[:2])
        return same * blocks * self.queries * self.keys

    def sees(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Return the number of the block of a score."""
        examples, heads = self.table.shape[:2]
        first = b if examples > 1 else torch.zeros_like(b)
        second = h if heads > 1 else torch.zeros_like(h)
        return self.table[first, second, q // self.queries, k // self.keys]


class ScoresPart(NamedTuple):
    """The scores of some queries of an example and of some keys."""

    example: int
    queries: slice
    keys: slice


def blocks_of(mask: tuple[Any, ...], query: Tensor, key: Tensor) -> Blocks:
    """Return the blocks of a mask.

    Args:
        mask: What ``BlockMask.as_tuple`` returns.
        query: Of shape (b, heads, queries, width).
        key: Of shape (b, heads, keys, width).
    """
    sizes = [
        min(size, -(-length // BLOCK) * BLOCK)
        for size, length in zip(mask[-3:-1], (query.shape[-2], key.shape[-2]))
    ]
    rows, columns = (
        -(-length // max(size, 1))
        for size, length in zip(sizes, (query.shape[-2], key.shape[-2]))
    )
    table = mask[2].new_zeros(*mask[2].shape[:2], rows, columns)
    lists = (_PARTLY, *mask[2:4]), (_WHOLE, *mask[4:6])
    for kind, counts, places in lists:
        if counts is not None:
            # The first entries of a list count; the others may be any.
            entries = torch.arange(places.shape[-1], device=places.device)
            counted = kind * (entries < counts[..., None]).int()
            table.scatter_add_(-1, places.long(), counted)
    return Blocks(table, *sizes)


def parts_of_scores(
    blocks: Blocks, query: Tensor, key: Tensor
) -> Iterator[ScoresPart]:
    """Yield what is computed at a time: all that any head sees of it."""
    known = values_of(plain(blocks.table))
    if not query.numel():
        return
    if known is None:
        for i in range(len(query)):
            yield ScoresPart(i, slice(None), slice(None))
        return
    seen = (known != _OUT).sum((0, 1))
    most = MOST_SCORES // (query.shape[1] * key.shape[-2])
    step = max(1, most // blocks.queries)  # rows of blocks at a time
    for i in range(len(query)):
        for row in range(0, len(seen), step):
            columns = seen[row : row + step].sum(0).nonzero().flatten()
            first = int(columns[0]) if len(columns) else 0
            last = int(columns[-1]) if len(columns) else 0
            yield ScoresPart(
                i,
                slice(row * blocks.queries, (row + step) * blocks.queries),
                slice(first * blocks.keys, (last + 1) * blocks.keys),
            )


def of_piece(
    piece: ScoresPart,
    blocks: Blocks,
    score_mod: Callable[..., Tensor],
    mask_mod: Callable[..., Tensor],
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return the two functions for a piece, which counts from 0."""

    def in_whole(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> list[Tensor]:
        first_query = piece.queries.start or 0
        first_key = piece.keys.start or 0
        return [b + piece.example, h, q + first_query, k + first_key]

    def score_of_piece(score: Tensor, *args: Tensor) -> Tensor:
        return score_mod(score, *in_whole(*args))

    def mask_of_piece(*args: Tensor) -> Tensor:
        indices = in_whole(*args)
        kind = blocks.sees(*indices)
        return (kind == _WHOLE) | ((kind == _PARTLY) & mask_mod(*indices))

    return score_of_piece, mask_of_piece
