"""How time passes on a cluster.

``clock`` -- hosts issue work, streams execute it in order: begin here;
``interface`` -- what a program asks of the clock, wherever the clock is;
``issuers`` -- the hosts and threads that issue work;
``queues`` -- the streams, whose work is placed in the order of time;
``resources`` -- what serves one user at a time: compute, a port;
``paths`` -- the ports and shared paths that a copy occupies;
``order`` -- what happens before what, for races;
``record`` -- what is written down: spans of time, blocks of memory.
"""

from dpkit.sim.clock.clock import Clock
from dpkit.sim.clock.interface import ClockInterface
from dpkit.sim.clock.issuers import DEFAULT, SHARE_OF_READING, SHARE_OF_WAIT
from dpkit.sim.clock.queues import Stream, Work
from dpkit.sim.clock.record import (
    SECOND,
    Block,
    Race,
    Record,
    Row,
    Span,
    is_host,
    streams,
)

__all__ = [
    "Block",
    "Clock",
    "ClockInterface",
    "DEFAULT",
    "Race",
    "Record",
    "Row",
    "SECOND",
    "SHARE_OF_READING",
    "SHARE_OF_WAIT",
    "Span",
    "Stream",
    "Work",
    "is_host",
    "streams",
]
