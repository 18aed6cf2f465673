"""Which positions of a sequence a rank has.

The sequence is cut into pieces of equal length. In order, there are k pieces,
and rank r has piece r. Balanced, there are 2k, and rank r has one from the
head and one from the tail of the sequence. With 3 ranks::

                rank 0    rank 1    rank 2
    in order    0         1         2
    balanced    0 5       1 4       2 3

With a causal mask, the queries of piece p see the keys of p pieces before it,
and on average half of the keys of piece p. In blocks of scores, piece against
piece, rank r computes::

    in order    r + 1/2                          of k² blocks
    balanced    (r + 1/2) + (2k − 1 − r + 1/2)   = 2k of (2k)² blocks

So in order it computes (r + 1/2) / k² of all scores, and balanced 1 / (2k)::

                rank 0    rank 1    rank 2
    in order    1/18      3/18      5/18
    balanced    1/6       1/6       1/6
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dpkit.arguments import check_dim, check_one_shape, tensor_list
from dpkit.units import check_count, check_flag, check_whole


def pieces(rank: int, world_size: int, balanced: bool) -> list[int]:
    """Return the numbers of the pieces that a rank has, in its order.

    Example:
        >>> [pieces(r, 3, balanced=True) for r in range(3)]
        [[0, 5], [1, 4], [2, 3]]
    """
    if not balanced:
        return [rank]
    return [rank, 2 * world_size - 1 - rank]


def positions(
    length: int, rank: int, world_size: int, balanced: bool = False
) -> Tensor:
    """Return the positions in the sequence that a rank has.

    Position embeddings and rotations need them: a rank that counted from 0
    would take its part for the beginning of the sequence.

    Args:
        length: The number of positions of the whole sequence.
        rank: The rank that asks.
        world_size: The number of ranks.
        balanced: Whether a rank has a piece of the head and one of the tail.

    Returns:
        Integers of shape (length / world_size,), on the CPU.

    Raises:
        ValueError: the sequence cannot be cut into pieces of equal length.

    Example:
        >>> positions(12, rank=1, world_size=3, balanced=True).tolist()
        [2, 3, 8, 9]
    """
    check_count("length", length)
    check_count("world_size", world_size)
    check_whole("rank", rank)
    check_flag("balanced", balanced)
    if not 0 <= rank < world_size:
        raise ValueError(
            f"there is no such rank (rank: {rank}, ranks: {world_size})"
        )
    count = 2 * world_size if balanced else world_size
    if length % count:
        raise ValueError(
            "the sequence cannot be cut into pieces of equal length (length: "
            f"{length}, pieces: {count}, ranks: {world_size}); pad it"
        )
    by_piece = torch.arange(length).view(count, -1)
    return by_piece[pieces(rank, world_size, balanced)].flatten()


def own_part(
    x: Tensor, dim: int, *, rank: int, world_size: int, balanced: bool = False
) -> Tensor:
    """Return a rank's part of a tensor that lies whole on every rank.

    Args:
        x: Of any shape; its dimension ``dim`` is the sequence.
        dim: The dimension of the positions.
        rank: The rank that asks.
        world_size: The number of ranks.
        balanced: As for :func:`positions`, which also says what is refused.

    Example:
        >>> x = torch.arange(8.0).view(1, 8)
        >>> own_part(x, dim=1, rank=0, world_size=2, balanced=True)
        tensor([[0., 1., 6., 7.]])
    """
    check_dim(x, dim)
    chosen = positions(
        x.shape[dim], rank=rank, world_size=world_size, balanced=balanced
    )
    return x.index_select(dim, chosen.to(x.device))


def join_sequence(
    parts: Sequence[Tensor], dim: int, balanced: bool = False
) -> Tensor:
    """Return the whole tensor, of which ``parts[r]`` is what rank r has.

    Args:
        parts: Tensors of one shape on one device, one of each rank.
        dim: The dimension of the positions.
        balanced: Whether they were cut so.

    Example:
        >>> x = torch.arange(8)
        >>> parts = [
        ...     own_part(x, 0, rank=r, world_size=2, balanced=True)
        ...     for r in (0, 1)
        ... ]
        >>> join_sequence(parts, dim=0, balanced=True)
        tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """
    parts = tensor_list(parts)
    if not parts:
        raise ValueError("no parts to join (parts: 0)")
    check_one_shape(parts)
    check_dim(parts[0], dim)
    joined = torch.cat(parts, dim)
    length = joined.shape[dim]
    order = [
        positions(length, rank=rank, world_size=len(parts), balanced=balanced)
        for rank in range(len(parts))
    ]
    back = torch.cat(order).argsort()
    return joined.index_select(dim, back.to(joined.device))
