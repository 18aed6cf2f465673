"""Streams, events, and what ``torch.distributed`` may send.

``streams`` -- ``torch.sim.Stream`` and ``torch.sim.Event``: begin here;
``generic`` -- ``torch.Stream`` and ``torch.Event`` on these devices;
``sending`` -- whether ``torch.distributed`` may send, and by which backend.
"""

from dpkit.sim.streams.sending import (
    BACKEND,
    FAKE,
    become_rank,
    check_rank,
    kind_of_rank,
    thread,
)
from dpkit.sim.streams.streams import SimEvent, SimStream, current_stream

__all__ = [
    "BACKEND",
    "FAKE",
    "SimEvent",
    "SimStream",
    "become_rank",
    "check_rank",
    "current_stream",
    "kind_of_rank",
    "thread",
]
