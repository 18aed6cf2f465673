"""Something that does one thing at a time: a device's compute, a port.

Times are whole numbers, such as picoseconds.
"""

from bisect import bisect_left
from collections.abc import Sequence

KEPT = 256  # intervals that are remembered; earlier gaps are not used


class Resource:
    """When something is busy.

    Work that comes later may begin earlier, in a gap::

        busy   ######      ####
        new          +++           ready at the end of the first
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def earliest(self, ready: int, duration: int) -> int:
        """Return the earliest start, from ``ready`` on, of such work."""
        ends = self.ends
        if not ends or ready >= ends[-1]:
            return ready
        i = bisect_left(ends, ready)
        while i < len(ends) and self.starts[i] < ready + duration:
            ready = max(ready, ends[i])
            i += 1
        return ready

    def occupy(self, start: int, duration: int) -> None:
        """Be busy from ``start``, which :meth:`earliest` gave."""
        end = start + duration
        if not self.ends or start > self.ends[-1]:
            self.starts.append(start)
            self.ends.append(end)
        elif start == self.ends[-1]:
            self.ends[-1] = end
        elif duration > 0:
            i = bisect_left(self.ends, end)
            self.starts.insert(i, start)
            self.ends.insert(i, end)
        if len(self.ends) > 2 * KEPT:
            # Join the oldest intervals into one.
            self.starts[1 : KEPT + 1] = []
            self.ends[:KEPT] = []


# Both ports have to be free at once. Sender busy 0-2, receiver busy 3-4:
#
#     sender    ##  ++        the gap 2-3 is too short for a copy of 2
#     receiver     #++        so it starts at 4


def earliest(resources: Sequence[Resource], ready: int, duration: int) -> int:
    """Return the earliest time at which all are free for so long."""
    start, moved = ready, True
    while moved:
        moved = False
        for resource in resources:
            free = resource.earliest(start, duration)
            if free > start:
                start, moved = free, len(resources) > 1
    return start


def reserve(resources: Sequence[Resource], ready: int, duration: int) -> int:
    """Occupy all ``resources`` at once, as early as possible; return when."""
    start = earliest(resources, ready, duration)
    for resource in resources:
        resource.occupy(start, duration)
    return start
