"""A pending collective: one that waits for its ranks to arrive.

Each rank contributes its tensors and goes on. The last one to arrive runs the
operation, for all::

    rank 0   |call|== goes on ==|wait|          hands its turn on
    rank 1          |call|                      arrives last: sends for all
             |== allreduce ==|                  from when both had called

On the simulated clock the operation starts when the streams of all have come
to it. It runs on side streams, overlapped with their work. A stream that needs
it waits for its end. Each group has another side stream on each of its
devices, as NCCL's groups have: what is slow in one group holds up no other.

A message from one rank to another is a collective of two.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import _disable_current_modes

from dpkit import streams
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import simulation
from dpkit.sim.streams import current_stream


class Contribution(NamedTuple):
    """What one rank contributes to a collective."""

    rank: int
    tensors: Any
    device: torch.device
    begin: Any  # the event in its stream from which on it may be sent


@dataclass
class PendingCollective:
    """One collective: which ranks have arrived so far, with what."""

    name: str  # "allreduce number 3 of group 0"
    call: str  # all that the ranks have to agree on
    caller: int  # the rank that arrived first
    size: int  # how many ranks are to arrive
    channel: str  # the name of the streams that it runs on, on all devices
    # By place in the group.
    contributions: dict[int, Contribution] = field(default_factory=dict)
    ends: dict[int, Any] = field(default_factory=dict)  # events, by rank
    # When the host of each rank has called it, in picoseconds, if it is noted.
    issued: dict[int, int] = field(default_factory=dict)
    is_over: bool = False
    error: Exception | None = None  # for which it was not sent

    def __str__(self) -> str:
        came = ", ".join(str(one.rank) for one in self.contributions.values())
        return f"{self.name} (ranks that came: {came})"

    def arrive(
        self, group_rank: int, own: Contribution, send: Callable[..., None]
    ) -> None:
        """Add the contribution of a rank; the last one to arrive sends.

        Args:
            group_rank: The rank in the group, or in the pair.
            own: What it contributes.
            send: Sends what all have contributed: a list of their tensors, in
                order of place. The last rank's is called.

        Raises:
            Exception: what ``send`` raises; the others raise RuntimeError when
                they wait for the collective.
        """
        self.contributions[group_rank] = own
        if len(self.contributions) < self.size:
            return
        in_order = [one for _, one in sorted(self.contributions.items())]
        # A rank that waits for this must not keep the tensors.
        self.contributions = {}
        begins = {one.device: one.begin for one in in_order}
        given = [one.tensors for one in in_order]
        # Buffers of the operation do not count as memory.
        with (
            streams.on_side_streams(begins, self.channel),
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


def _keep(one: Contribution) -> None:
    """Keep the tensors of a rank until they are sent, as NCCL's group does."""
    for x in tensors_in(one.tensors):
        if x.device.type == "sim":
            stream: Any = current_stream(x.device)
            x.record_stream(stream)
