"""An operation of a process group: a meeting of its ranks.

Each rank comes with its tensors and goes on. The last one to come runs the
operation, for all::

    rank 0   |call|== goes on ==|wait|          hands its turn on
    rank 1          |call|                      came last: sends for all
             |== allreduce ==|                  from when both had called

On the simulated clock the operation starts when the streams of all have come
to it. It runs beside their work. A stream that needs it waits for its end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from dpkit import streams
from dpkit.sim.configuration import simulation
from dpkit.sim.memory import tensors_in
from dpkit.sim.streams import current_stream


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

    def __str__(self) -> str:
        came = ", ".join(str(one.rank) for one in self.brought.values())
        return f"{self.name} (ranks that came: {came})"

    def come(
        self, place: int, brought: Brought, send: Callable[..., None]
    ) -> None:
        """Come to the operation, in a place; the last one sends."""
        self.brought[place] = brought
        if len(self.brought) < self.size:
            return
        in_order = [one for _, one in sorted(self.brought.items())]
        self.brought = {}  # who waits for this must not keep the tensors
        begins = {one.device: one.begin for one in in_order}
        # It is sent beside the work of the devices. Buffers do not count.
        with streams.beside(begins, self.way), simulation.memory.paused():
            try:
                send([one.tensors for one in in_order])
            except Exception as error:
                error.add_note(f"in {self.name}")
                raise
            for one in in_order:
                _keep(one)
                self.ends[one.rank] = streams.record_event(one.device)
        self.is_over = True


def _keep(one: Brought) -> None:
    """Keep the tensors of a rank until they are sent, as NCCL's group does."""
    for x in tensors_in(one.tensors):
        if x.device.type == "sim":
            stream: Any = current_stream(x.device)
            x.record_stream(stream)
