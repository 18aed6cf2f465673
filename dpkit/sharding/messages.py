"""What a block sends beside the work of its devices.

Both kinds of message run on another stream of each device. They start when
the device is done with what it has been asked for so far. What needs the
result waits for it::

    device 0    |= block 0 =|= block 1 ==|= block 2 =|
    beside      |gather 1|  |gather 2|
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dpkit.collectives import reduce_scatter
from dpkit.sharding.flat_block import FlatBlock
from dpkit.streams import Parcel, beside, record_event


def gather_beside(block: FlatBlock, algorithm: str = "ring") -> list[Parcel]:
    """Gather a block; opening what is returned waits for it.

    Example:
        >>> from dpkit.sharding.messages import gather_beside
        >>> block = dpkit.sharding.FlatBlock(
        ...     nn.Linear(2, 1), dpkit.devices(2, "sim")
        ... )
        >>> block.cut()
        >>> for parcel in gather_beside(block):
        ...     print(parcel.open().shape)
        torch.Size([3])
        torch.Size([3])
    """
    with beside(_now(block.wholes)):
        block.gather(algorithm)
        return _parcels(block.wholes)


class Scattering:
    """The gradients of a block on their way: reduced, and in parts.

    The whole of them stays until :meth:`keep`, because it is being sent.
    """

    def __init__(self, block: FlatBlock, algorithm: str = "ring") -> None:
        self._block = block
        wholes = block.take_gradients()
        with beside(_now(wholes)):
            self._parts = reduce_scatter(wholes, "mean", algorithm)
            self._parcels = _parcels(wholes)

    def wait(self) -> None:
        """Have each device wait until the gradients have been sent."""
        for parcel in self._parcels:
            parcel.open()

    def keep(self) -> None:
        """Wait, and add the parts to the gradients of the shards, once."""
        self.wait()
        self._block.add_gradients(self._parts)
        self._parts, self._parcels = [], []


def _now(tensors: Sequence[Tensor]) -> dict[torch.device, object]:
    """Return the events at the end of the work of each device so far."""
    return {x.device: record_event(x.device) for x in tensors}


def _parcels(tensors: Sequence[Tensor]) -> list[Parcel]:
    """Return the tensors, to be opened when what is issued here is over."""
    events = [record_event(x.device) for x in tensors]
    return [
        Parcel(x, event, (x.device,) if event is not None else ())
        for x, event in zip(tensors, events)
    ]
