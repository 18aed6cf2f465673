"""The bytes that a tensor occupies in its storage."""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_MASK = 2**28  # bytes that are compared one by one


class Extent(NamedTuple):
    """Bytes of a storage: all from the first to the end, or some of them."""

    # x[:, 1:3] of a tensor of shape (2, 5), of float32:
    #
    #     x           · # # · ·   · # # · ·
    #     first 4, end 32, shape (2, 2), strides (20, 4), not dense

    first: int
    end: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    is_dense: bool  # whether it has all bytes from the first to the end

    def contains(self, other: "Extent") -> bool:
        """Return whether all bytes of the other are here, as far as known."""
        around = self.first <= other.first and other.end <= self.end
        return self == other or (self.is_dense and around)

    def overlaps(self, other: "Extent") -> bool:
        """Return whether a byte is in both."""
        if self.first >= other.end or other.first >= self.end:
            return False
        if (self.is_dense and other.is_dense) or self == other:
            return True
        # Columns of a matrix may lie between each other.
        start = min(self.first, other.first)
        stop = max(self.end, other.end)
        if stop - start > LARGEST_MASK:
            return True
        both = self._mask(start, stop) & other._mask(start, stop)
        return bool(both.any())

    def _mask(self, start: int, stop: int) -> Tensor:
        """Return for each byte from ``start`` to ``stop`` whether it is in."""
        mask = torch.zeros(stop - start, dtype=torch.bool)
        steps = zip(self.shape, self.strides)
        item = self.end - self.first - sum((n - 1) * step for n, step in steps)
        shape = (*self.shape, item)
        strides = (*self.strides, 1)
        mask.as_strided(shape, strides, self.first - start).fill_(True)
        return mask


def extent_of(x: Tensor) -> Extent:
    """Return the bytes of a tensor that has some."""
    item = x.element_size()
    # What is expanded has no more bytes for it.
    steps = [(n, item * s) for n, s in zip(x.shape, x.stride()) if s and n > 1]
    first = item * int(x.storage_offset())
    end = first + sum((n - 1) * step for n, step in steps) + item
    shape = tuple(n for n, _ in steps)
    strides = tuple(step for _, step in steps)
    is_dense = end - first == item * prod(shape)
    return Extent(first, end, shape=shape, strides=strides, is_dense=is_dense)
