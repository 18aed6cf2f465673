"""Batches by one indexing operation: quicker than one example at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from dpkit.accelerator import real_devices


class Batches:
    """Batches of a labelled set that lies in memory, to be iterated over.

    Each iteration is one epoch: it yields every example once, as pairs (X, y)
    of fresh tensors on the device of the set; the last batch may be smaller.

    Args:
        images: All images, shape (n, …).
        labels: Their labels, shape (n,).
        batch_size: The rows of a batch.
        shuffle: Whether each epoch has a new random order.
        seed: Where the generator of these orders begins.
        pin_memory: Whether batches on the CPU lie in pinned memory, if there
            are devices to copy them to; ``DataLoader`` has a thread for it.

    Raises:
        ValueError: If a batch has no rows, or labels and images differ in n.

    Example:
        >>> images, labels = torch.rand(7, 1, 5, 4), torch.arange(7)
        >>> batches = Batches(images, labels, batch_size=3)
        >>> len(batches)  # ceil(7 / 3)
        3
        >>> [tuple(X.shape) for X, y in batches]
        [(3, 1, 5, 4), (3, 1, 5, 4), (1, 1, 5, 4)]
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        pin_memory: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch without rows (batch_size: {batch_size})")
        if len(images) != len(labels):
            raise ValueError(
                "images and labels of different lengths "
                f"(images: {len(images)}, labels: {len(labels)})"
            )
        self.images = images
        self.labels = labels
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.pin_memory = pin_memory
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        n = len(self.labels)
        order = torch.arange(n)
        if self.shuffle:
            order = torch.randperm(n, generator=self._generator)
        order = order.to(self.images.device)  # or each batch would send rows
        pins = self.pin_memory and self.images.device.type == "cpu"
        pins = pins and bool(real_devices() or hasattr(torch, "sim"))
        # 7 examples by 3: rows 0 1 2, then 3 4 5, then 6.
        for start in range(0, n, self.batch_size):
            rows = order[start : start + self.batch_size]
            X, y = self.images[rows], self.labels[rows]
            yield (X.pin_memory(), y.pin_memory()) if pins else (X, y)
