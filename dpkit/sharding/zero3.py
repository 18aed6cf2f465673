"""ZeRO, stage 3: a device keeps a shard of everything.

The parameters of a block are gathered before it, in forward and in backward,
and freed after it. A gather can run beside the work of the block before. When
it is asked for decides whether it does::

    "just in time"    |gather 0| block 0 |gather 1| block 1 |gather 2| block 2
    "too late"        |gather 0| block 0 |gather 1| block 1 |gather 2| block 2
    "prefetched"      |gather 0|gather 1|gather 2|
                               | block 0 | block 1 | block 2

"too late" asks for the next block beside the work, as "prefetched" does, but
when the work has been issued: what is asked for now waits for that.

Gradients are reduced and scattered beside the backward of the next block. The
whole of them stays until then, because it is being sent.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.arguments import Devices
from dpkit.collectives import reduce_scatter
from dpkit.sharding.flat_block import FlatBlock
from dpkit.sharding.passes import Optimizer, Passes
from dpkit.streams import Parcel, beside, record_event
from dpkit.theory.units import check_known

WHEN = "just in time", "prefetched", "too late"


class Zero3(Passes):
    """Parameters, gradients and the optimizer's state in shards.

    Args:
        blocks: As for :class:`Passes`, like the next three.
        devices: k devices.
        optimizer: Makes the optimizer of a list of flat shards.
        algorithm: That of the collectives.
        gather: When parameters are gathered: "just in time", "prefetched" or
            "too late".
        dtype: That of the parameters and gradients that are whole, such as
            ``torch.bfloat16``; shards keep that of the blocks. None: the same.

    Example:
        >>> from dpkit.sharding import Zero3
        >>> blocks = nn.Linear(3, 4), nn.Linear(4, 1)
        >>> adam = lambda shards: torch.optim.Adam(shards, lr=0.1)
        >>> parallel = Zero3(blocks, dpkit.devices(2, "sim"), adam)
        >>> X, y = torch.ones(5, 3), torch.zeros(5, 1)
        >>> loss = parallel.forward_backward(X, y, nn.MSELoss())
        >>> parallel.step()
        >>> parallel.blocks[0].wholes[1].untyped_storage().nbytes()
        0
    """

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        devices: Devices,
        optimizer: Optimizer,
        algorithm: str = "ring",
        gather: str = "prefetched",
        dtype: torch.dtype | None = None,
    ) -> None:
        check_known("gather", gather, WHEN)
        self.gather, self.dtype = gather, dtype
        self._coming: dict[int, list[Parcel]] = {}  # parameters, by block
        self._leaving: tuple[FlatBlock, list[Tensor], list[Parcel]] | None
        self._leaving = None  # gradients: their block, the sums, the wholes
        super().__init__(blocks, devices, optimizer, algorithm)

    def _prepare(self) -> None:
        for block in self.blocks:
            block.shards = [part.clone() for part in block.shards]
            if self.dtype is not None:
                block.convert(self.dtype)
            block.free()

    def before(self, place: int, following: int | None) -> None:
        """Have a block whole and, if prefetched, the next one on its way."""
        if place not in self._coming:
            self._ask_for(place)
        for parcel in self._coming.pop(place):
            parcel.open()
        if self.gather == "prefetched" and following is not None:
            self._ask_for(following)

    def after_forward(self, place: int, following: int | None) -> None:
        """Free the block."""
        if self.gather == "too late" and following is not None:
            self._ask_for(following)
        self.blocks[place].free()

    def after_backward(self, place: int, following: int | None) -> None:
        """Send the gradients of the block off, and free it."""
        self._receive()
        block = self.blocks[place]
        wholes = block.take_gradients()
        with beside(self._events()):
            parts = reduce_scatter(wholes, "mean", self.algorithm)
            self._leaving = block, parts, self._parcels(wholes)
        self.after_forward(place, following)
        if following is None:
            self._receive()

    def _ask_for(self, place: int) -> None:
        """Gather a block beside the work that is issued from now on."""
        block = self.blocks[place]
        with beside(self._events()):
            block.gather(self.algorithm)
            self._coming[place] = self._parcels(block.wholes)

    def _receive(self) -> None:
        """Keep a part of the gradients sent last; their wholes go."""
        if self._leaving is not None:
            block, parts, parcels = self._leaving
            for parcel in parcels:
                parcel.open()
            block.add_gradients(parts)
            self._leaving = None

    def _events(self) -> dict[torch.device, object]:
        """Return where the work of each device is now."""
        return {device: record_event(device) for device in self.devices}

    def _parcels(self, wholes: Sequence[Tensor]) -> list[Parcel]:
        """Return what is there when what was issued here is over."""
        events = [record_event(x.device) for x in wholes]
        return [
            Parcel(x, event, (x.device,) if event is not None else ())
            for x, event in zip(wholes, events)
        ]
