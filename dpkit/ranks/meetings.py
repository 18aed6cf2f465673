"""An operation of a process group: a meeting of its ranks.

Each rank comes with its tensors and goes on. The last one to come runs the
operation, for all::

    rank 0   |call|== goes on ==|wait|          hands its turn on
    rank 1          |call|                      came last: sends for all
             |== allreduce ==|                  from when both had called

On the simulated clock the operation starts when the streams of all have come
to it, beside their work, and whoever waits for it waits there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from dpkit import streams
from dpkit.sim.configuration import simulation

Send = Callable[[list[Any]], None]  # takes what all ranks brought, in order


class Brought(NamedTuple):
    """What a rank comes with."""

    rank: int
    tensors: Any
    device: torch.device
    begin: Any  # the event in its stream from which on it may be sent


@dataclass
class Meeting:
    """One operation: who has come to it so far, with what."""

    name: str  # "allreduce number 3 of group 0"
    call: str  # all that the ranks have to agree on
    caller: int  # the rank that came first
    size: int  # how many are to come
    way: str = ""  # of a pair: its messages hold up no others
    brought: dict[int, Brought] = field(default_factory=dict)  # by place
    ends: dict[int, Any] = field(default_factory=dict)  # events, by rank
    is_over: bool = False

    def come(self, place: int, brought: Brought, send: Send) -> None:
        """Come to the operation, in a place; the last one sends."""
        self.brought[place] = brought
        if len(self.brought) == self.size:
            in_order = [one for _, one in sorted(self.brought.items())]
            self.brought = {}  # who waits for this must not keep the tensors
            self._run(in_order, send)

    def _run(self, in_order: list[Brought], send: Send) -> None:
        """Send beside the work of the devices."""
        begins = {brought.device: brought.begin for brought in in_order}
        # A library's own memory does not count.
        with streams.beside(begins, self.way), simulation.memory.paused():
            send([brought.tensors for brought in in_order])
            self.ends = {
                brought.rank: streams.record_event(brought.device)
                for brought in in_order
            }
        self.is_over = True
