"""An operation of a process group: a meeting of its ranks.

Each rank comes with its tensors and goes on. The last one to come runs the
operation, for all::

    rank 0   |call|== goes on ==|wait|          hands its turn on
    rank 1          |call|                      came last: sends for all
             |== allreduce ==|                  from when both had called

On the simulated clock the operation starts when the streams of all have come
to it. It runs beside their work. A stream that needs it waits for its end.
Each group has another stream on each of its devices, as NCCL's groups have:
what is slow in one group holds up no other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import _disable_current_modes

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
    way: str  # the name of the streams that it runs on, on all devices
    brought: dict[int, Brought] = field(default_factory=dict)  # by place
    ends: dict[int, Any] = field(default_factory=dict)  # events, by rank
    is_over: bool = False
    error: Exception | None = None  # for which it was not sent

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
        given = [one.tensors for one in in_order]
        # It is sent beside the work of the devices. Buffers do not count.
        with (
            streams.beside(begins, self.way),
            simulation.memory.paused(),
            _unseen(given),
        ):
            try:
                send(given)
            except Exception as error:
                error.add_note(f"in {self.name}")
                self.error = error
                raise
            finally:
                self.is_over = True
            for one in in_order:
                _keep(one)
                self.ends[one.rank] = streams.record_event(one.device)


@contextmanager
def _unseen(given: Any) -> Iterator[None]:
    """Hide from PyTorch by which operations tensors are sent in a block.

    NCCL and gloo send what lies in memory. To autograd, a tensor that they
    wrote to is as it was; and a mode sees the collective alone.
    """
    tensors = [x for x in tensors_in(given) if not x.is_inference()]
    as_it_was = _unsafe_preserve_version_counter(tuple(tensors))
    with as_it_was, _disable_current_modes():
        yield


def _keep(one: Brought) -> None:
    """Keep the tensors of a rank until they are sent, as NCCL's group does."""
    for x in tensors_in(one.tensors):
        if x.device.type == "sim":
            stream: Any = current_stream(x.device)
            x.record_stream(stream)
