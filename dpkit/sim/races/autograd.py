"""The streams that CUDA's backward runs in.

The simulated clock runs backward in the streams that are current when it is
called. On CUDA each operation runs in the stream of its forward. Where
backward passes from one stream of a device to another, the other one waits.
In the end the current streams wait for all. Here CUDA's rule holds::

    current stream now      forward was in    backward is taken to run in
    as when it was called   stream 2          stream 2
    as when it was called   not known         the current one
    another, by a hook      any               the current one
"""

from collections.abc import Sequence
from threading import local
from typing import Any

import torch

from dpkit.sim.clock.order import HappensBefore
from dpkit.sim.clock.queues import Stream

_engine: Any = torch._C
_graph: Any = torch._C._autograd


class AutogradStreams(local):
    """The streams of forward and of backward, in a thread of Python."""

    def __init__(self, order: HappensBefore) -> None:
        self._order = order
        self._depth = 0  # of backward passes inside each other
        self._first: list[int] = []  # the current ones when it was called
        self._last: list[int] = []  # of each device, where it has run last
        # By the number of autograd's node and a device: that of forward.
        self._of_nodes: dict[tuple[int, int], int] = {}

    def begin_backward(self, current: Sequence[int]) -> None:
        """Note that backward was called, with these current streams."""
        self._depth += 1
        if self._depth == 1:
            self._first = list(current)
            self._last = list(current)

    def end_backward(self) -> None:
        """Make the streams that were current then wait for backward."""
        self._depth -= 1
        if not self._depth:
            for device, number in enumerate(self._first):
                self._pass_on(device, number)

    def of(self, device: int, current: int) -> Stream:
        """Return the stream that the next operation on a device runs in."""
        if not self._depth:
            # Its node, if it has one, got the last number that was given.
            node = _graph._get_sequence_nr() - 1
            self._of_nodes.setdefault((node, device), current)
            return device, current
        if current != self._first[device]:
            return device, current
        node = _engine._current_autograd_node()
        key = node and (node._sequence_nr(), device)
        number = self._of_nodes.get(key, current)
        self._pass_on(device, number)
        return device, number

    def _pass_on(self, device: int, number: int) -> None:
        """Go on with backward in a stream of a device."""
        if self._last[device] != number:
            last = self._order.past((device, self._last[device]))
            self._order.stream_waits((device, number), last)
            self._last[device] = number
