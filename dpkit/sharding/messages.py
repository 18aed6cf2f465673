"""What a block sends, overlapped with the work of its devices.

Both kinds of message run on a side stream of each device. They start when
the device is done with what it has been asked for so far. What needs the
result waits for it::

    device 0    |= block 0 =|= block 1 ==|= block 2 =|
    side        |gather 1|  |gather 2|
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dpkit.collectives import reduce_scatter
from dpkit.sharding.flat_block import FlatBlock
from dpkit.streams import PendingTensor, on_side_streams, record_event


def gather_on_side_streams(
    block: FlatBlock, algorithm: str = "ring"
) -> list[PendingTensor]:
    """Gather a block on side streams; return its tensors, to be waited for.

    Example:
        >>> from dpkit.sharding.messages import gather_on_side_streams
        >>> block = dpkit.sharding.FlatBlock(
        ...     nn.Linear(2, 1), dpkit.devices(2, "sim")
        ... )
        >>> block.cut()
        >>> for tensor in gather_on_side_streams(block):
        ...     print(tensor.wait().shape)
        torch.Size([3])
        torch.Size([3])
    """
    with on_side_streams(_now(block.wholes)):
        block.gather(algorithm)
        return _pending(block.wholes)


class Scattering:
    """The gradients of a block on their way: reduced, and in parts.

    The whole of them stays until :meth:`keep`, because it is being sent.
    """

    def __init__(self, block: FlatBlock, algorithm: str = "ring") -> None:
        self._block = block
        wholes = block.take_gradients()
        with on_side_streams(_now(wholes)):
            self._parts = reduce_scatter(wholes, "mean", algorithm)
            self._pending = _pending(wholes)

    def wait(self) -> None:
        """Have each device wait until the gradients have been sent."""
        for tensor in self._pending:
            tensor.wait()

    def keep(self) -> None:
        """Wait, and add the parts to the gradients of the shards, once."""
        self.wait()
        self._block.add_gradients(self._parts)
        self._parts = []
        self._pending = []


def _now(tensors: Sequence[Tensor]) -> dict[torch.device, object]:
    """Return the events at the end of the work of each device so far."""
    return {x.device: record_event(x.device) for x in tensors}


def _pending(tensors: Sequence[Tensor]) -> list[PendingTensor]:
    """Return the tensors, which are ready when what is issued here is done."""
    events = [record_event(x.device) for x in tensors]
    return [
        PendingTensor(x, event, (x.device,) if event is not None else ())
        for x, event in zip(tensors, events)
    ]
