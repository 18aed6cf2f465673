"""How torch is changed, and changed back; what is changed is in ``patches``.

``change`` -- one change: whether it fits, how it is made and taken back;
``mixed_backends`` -- GPUs and simulated devices in one process, by a change of
    a pointer;
``call_slot`` -- that pointer, by which one library calls another.
"""

from dpkit.sim.changes.change import Patch, added, replaced, stood_in, wrapped
from dpkit.sim.changes.mixed_backends import why_apart

__all__ = [
    "Patch",
    "added",
    "replaced",
    "stood_in",
    "why_apart",
    "wrapped",
]
