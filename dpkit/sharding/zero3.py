"""ZeRO, stage 3: a device keeps a shard of everything.

The parameters of a block are gathered before it, in forward and in backward,
and freed after it. A gather can overlap with the work of the block before.
When it is asked for decides whether it does::

    "just in time"    |gather 0| block 0 |gather 1| block 1 |gather 2| block 2
    "too late"        |gather 0| block 0 |gather 1| block 1 |gather 2| block 2
    "prefetched"      |gather 0|gather 1|gather 2|
                               | block 0 | block 1 | block 2

"too late" asks for the next block during the work, as "prefetched" does, but
when the work has been issued: what is asked for now waits for that.

Gradients are reduced and scattered during the backward of the next block. The
whole of them stays until then, because it is being sent.
"""

from typing import Any

import torch

from dpkit.sharding.messages import Scattering, gather_on_side_streams
from dpkit.sharding.passes import Passes
from dpkit.units import check_known

REQUESTS = "just in time", "prefetched", "too late"


class Zero3(Passes):
    """Parameters, gradients and the optimizer's state in shards.

    Args:
        *arguments: Those of :class:`Passes`, and its option ``algorithm``.
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
        *arguments: Any,
        gather: str = "prefetched",
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        check_known("gather", gather, REQUESTS)
        self.gather = gather
        self.dtype = dtype
        self._coming: dict[int, Any] = {}  # the gathers of blocks, by place
        self._leaving: Scattering | None = None
        super().__init__(*arguments, **options)

    def _prepare(self) -> None:
        for block in self.blocks:
            block.cut(self.dtype)

    def begin(self) -> None:
        """Forget what an exception has left on its way, when it is there."""
        for block in self._coming.values():
            for tensor in block:
                tensor.wait()
        self._coming.clear()
        if self._leaving is not None:
            self._leaving.wait()
        self._leaving = None
        for block in self.blocks:
            block.forget_gradients()

    def before(self, place: int, following: int | None) -> None:
        """Have a block whole and, if prefetched, the next one on its way."""
        self._ask_for(place)
        for tensor in self._coming.pop(place):
            tensor.wait()
        if self.gather == "prefetched":
            self._ask_for(following)

    def after_forward(self, place: int, following: int | None) -> None:
        """Free the block."""
        if self.gather == "too late":
            self._ask_for(following)
        self.blocks[place].free()

    def after_backward(self, place: int, following: int | None) -> None:
        """Send the gradients of the block off, and free it."""
        if self._leaving is not None:
            self._leaving.keep()  # those of the block before
        self._leaving = Scattering(self.blocks[place], self.algorithm)
        self.after_forward(place, following)
        if following is None:
            self._leaving.keep()
            self._leaving = None

    def _ask_for(self, place: int | None) -> None:
        if place is not None and place not in self._coming:
            block = self.blocks[place]
            self._coming[place] = gather_on_side_streams(block, self.algorithm)
