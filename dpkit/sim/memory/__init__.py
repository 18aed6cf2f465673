"""What lies in the memory of a device.

``accounting`` -- live and peak bytes, by storage: begin here;
``garbage`` -- frees what nobody can use, before memory is judged;
``small_integers`` -- the values that a machine without values keeps.
"""

from dpkit.sim.memory.accounting import Allocation, Memory
from dpkit.sim.memory.garbage import collect_garbage
from dpkit.sim.memory.small_integers import (
    has_no_gaps,
    has_values,
    keep_values,
    lose_values,
    may_keep,
    values_of,
)

__all__ = [
    "Allocation",
    "Memory",
    "collect_garbage",
    "has_no_gaps",
    "has_values",
    "keep_values",
    "lose_values",
    "may_keep",
    "values_of",
]
