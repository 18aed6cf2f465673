"""Which gradients share a bucket, and the bucket."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dpkit.arguments import tensor_list
from dpkit.units import check_number


def assign(
    tensors: Sequence[Tensor],
    bucket_bytes: float,
    first_bytes: float | None = None,
) -> list[list[int]]:
    """Return which tensors share a bucket: neighbours, until it is filled.

    The last tensor of a bucket may reach beyond its size, as in PyTorch.
    Tensors of two dtypes or devices never share a bucket. The result is a list
    for each bucket, of the places of its tensors in ``tensors``; the buckets
    are in the order in which they will be full.

    Args:
        tensors: In the order in which their gradients will be ready.
        bucket_bytes: A bucket takes no more once it has that or above.
        first_bytes: The same for the first bucket of a dtype and device;
            None: ``bucket_bytes``.

    Example:
        >>> tensors = [torch.zeros(n) for n in (3, 2, 4, 7, 1)]
        >>> dpkit.buckets.assign(tensors, bucket_bytes=24, first_bytes=16)
        [[0, 1], [2, 3], [4]]
    """
    # Tensors of 12, 8, 16, 28 and 4 bytes, in buckets of 24, the first of 16:
    # [12 8] has reached 16. [16 28] has reached 24. [4] is what is left.
    tensors = tensor_list(tensors)
    first_bytes = bucket_bytes if first_bytes is None else first_bytes
    check_number("bucket_bytes", bucket_bytes)
    check_number("first_bytes", first_bytes)
    if not (bucket_bytes >= 0 and first_bytes >= 0):
        raise ValueError(
            "the size of a bucket is negative or NaN (bucket_bytes: "
            f"{bucket_bytes}, first_bytes: {first_bytes})"
        )
    groups: list[list[int]] = []
    current: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    room: dict[tuple[torch.device, torch.dtype], float] = {}
    for i, tensor in enumerate(tensors):
        kind = (tensor.device, tensor.dtype)
        if kind not in room or room[kind] <= 0:
            room[kind] = bucket_bytes if kind in room else first_bytes
            current[kind] = []
            groups.append(current[kind])
        current[kind].append(i)
        room[kind] -= tensor.nbytes
    return sorted(groups, key=max)  # full when its last tensor is there


class Bucket:
    """Gradients that travel together, as one flat tensor.

    Args:
        index: Which bucket of its rank it is.
        params: The parameters, of any shapes, in the order of their gradients.

    Example:
        >>> params = [torch.ones(2, 3), torch.ones(4)]
        >>> bucket = dpkit.buckets.Bucket(0, params)
        >>> bucket.flat.shape  # 2 · 3 + 4 elements, and 2 flags
        torch.Size([12])
        >>> params[1].grad = torch.full((4,), 7.0)
        >>> bucket.note_ready(1)
        >>> bucket.flat[6:10], bucket.is_full
        (tensor([7., 7., 7., 7.]), False)
    """

    def __init__(self, index: int, params: Iterable[Tensor]) -> None:
        self.index = index  #: which bucket of its rank it is
        self.params = tuple(params)  #: all of one dtype and on one device
        sizes = [p.numel() for p in self.params]
        #: Their gradients one after another, then a flag for each, shape
        #: (elements of all parameters + parameters,).
        self.flat = torch.zeros(
            sum(sizes) + len(sizes),
            dtype=self.params[0].dtype,
            device=self.params[0].device,
        )
        *pieces, self._flags = self.flat.split([*sizes, len(sizes)])
        #: ``gradients[i]`` is the view of ``flat`` that becomes
        #: ``params[i].grad``; it has the shape and strides of ``params[i]``.
        self.gradients = [
            _shaped_like(p, piece) for p, piece in zip(self.params, pieces)
        ]
        self.is_sent = False  #: whether the caller got it since backward began
        self._ready: set[int] = set()

    @property
    def is_full(self) -> bool:
        """Whether backward has made all gradients."""
        return len(self._ready) == len(self.params)

    def clear(self) -> None:
        """Expect all gradients again."""
        self.is_sent = False
        self._ready.clear()

    def note_ready(self, place: int) -> None:
        """Take in the gradient of ``params[place]``, which is complete."""
        self.take_in(place)
        self._ready.add(place)

    @torch.no_grad()
    def take_in(self, place: int) -> None:
        """Make the gradient of ``params[place]``, if any, our view."""
        p = self.params[place]
        view = self.gradients[place]
        if p.grad is None or p.grad is view:
            return
        if p.grad.layout != torch.strided:
            raise TypeError(
                "a bucket holds dense gradients alone (shape of the "
                f"parameter: {tuple(p.shape)}, layout of its gradient: "
                f"{p.grad.layout})"
            )
        view.copy_(p.grad)
        p.grad = view

    def close(self) -> None:
        """Fill in old gradients, or zeros, where backward made none."""
        # Two gradients of three, of 2 elements each: [g g | 0 0 | g g | 1 0 1]
        self._flags.fill_(1)
        for place, p in enumerate(self.params):
            if place not in self._ready:
                self.take_in(place)
                if p.grad is None:
                    self.gradients[place].zero_()
                    self._flags[place] = 0
        self.is_sent = True

    def settle(self) -> None:
        """Give a gradient to parameters that lack one, if a rank had it."""
        # A flag is a sum, or a mean, over all ranks: above 0 if one had it.
        lacking = [i for i, p in enumerate(self.params) if p.grad is None]
        if lacking:
            flags = self._flags.tolist()  # waits for the device
            for place in lacking:
                if flags[place]:
                    self.params[place].grad = self.gradients[place]


def _shaped_like(p: Tensor, piece: Tensor) -> Tensor:
    """Return a view of a flat piece, shaped like ``p``."""
    # Strides that leave gaps, or that overlap, become those of a new tensor.
    strides = torch.empty_like(p, device="meta").stride()
    return piece.as_strided(p.shape, strides, piece.storage_offset())
