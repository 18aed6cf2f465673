"""Something that is busy for a while: a device's compute, a port, a path.

Times are whole numbers, such as picoseconds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

FULL = 10**9  # the share that leaves no room for anything else
KEPT = 512  # marks that are remembered; earlier gaps are not used


# Work that comes later may begin earlier, in a gap:
#
#     busy   ######      ####
#     new          +++            ready at the end of the first
#
# Two copies take half of a path each, and run side by side. A third takes a
# quarter; it begins when the first is done:
#
#     1/2      #####
#     1/2         #####
#     1/4           ++         ready when the second begins
#
#     marks    0  3 5 7 8      when each load begins
#     loads    2  4 3 2 0      in quarters; the last one lasts


class Resource:
    """How much of something is taken, and when; by default all of it."""

    def __init__(self) -> None:
        self.marks = [0]  # from marks[i] on, until the next one,
        self.loads = [0]  # the shares that are taken add up to loads[i]

    def earliest(self, ready: int, duration: int, share: int = FULL) -> int:
        """Return the earliest time, from ``ready`` on, with room for work."""
        marks = self.marks
        loads = self.loads
        if ready >= marks[-1]:
            return ready
        i = bisect_right(marks, ready) - 1
        end = ready + duration
        while i < len(marks) and marks[i] < end:
            if loads[i] + share > FULL:
                ready = marks[i + 1]
                end = ready + duration
            i += 1
        return ready

    def room(self, start: int, duration: int) -> int:
        """Return the share that is free all the time from ``start`` on."""
        if start >= self.marks[-1]:
            return FULL
        first = bisect_right(self.marks, start) - 1
        last = bisect_left(self.marks, start + duration)
        return FULL - max(self.loads[first:last], default=0)

    def occupy(self, start: int, duration: int, share: int = FULL) -> None:
        """Be busy from ``start``, which :meth:`earliest` gave."""
        if duration == 0:
            return
        if start < self.marks[-1]:
            self._occupy_between(start, duration, share)
        else:
            self._occupy_last(start, duration, share)
        if len(self.marks) > 2 * KEPT:
            # What is further back is taken for busy.
            self.loads[0] = FULL
            del self.marks[1 : KEPT + 1], self.loads[1 : KEPT + 1]

    def _occupy_last(self, start: int, duration: int, share: int) -> None:
        """Be busy after all that is known: the usual case, and the fastest."""
        marks = self.marks
        loads = self.loads
        if start > marks[-1]:
            marks.append(start)
            loads.append(share)
        elif loads[-2:-1] == [share]:  # it goes on as before
            marks[-1] += duration
            return
        else:
            loads[-1] = share
        marks.append(start + duration)
        loads.append(0)

    def _occupy_between(self, start: int, duration: int, share: int) -> None:
        """Be busy in a gap, or while other work takes a share."""
        first = self._mark(start)
        last = self._mark(start + duration)
        for i in range(first, last):
            self.loads[i] += share
        for i in (last, first):  # of equal neighbours one is enough
            if i and self.loads[i] == self.loads[i - 1]:
                del self.marks[i], self.loads[i]

    def _mark(self, time: int) -> int:
        """Return where the load that begins at ``time`` is; make it so."""
        i = bisect_left(self.marks, time)
        if i == len(self.marks) or self.marks[i] != time:
            self.marks.insert(i, time)
            self.loads.insert(i, self.loads[i - 1])
        return i


class Share(NamedTuple):
    """A part of a resource, of ``FULL``: others may take the rest."""

    resource: Resource
    share: int

    def earliest(self, ready: int, duration: int) -> int:
        """Return the earliest time, from ``ready`` on, with room for work."""
        return self.resource.earliest(ready, duration, self.share)

    def occupy(self, start: int, duration: int) -> None:
        """Be busy from ``start``, which :meth:`earliest` gave."""
        self.resource.occupy(start, duration, self.share)


class ResidualBandwidth(NamedTuple):
    """The residual bandwidth: all that others leave of a resource.

    It is half of the resource at least.
    """

    resource: Resource

    def earliest(self, ready: int, duration: int) -> int:
        """Return the earliest time, from ``ready`` on, with room for work."""
        return self.resource.earliest(ready, duration, FULL // 2)

    def occupy(self, start: int, duration: int) -> None:
        """Take what is left from ``start`` on, so that nothing is."""
        room = self.resource.room(start, duration)
        self.resource.occupy(start, duration, room)


Needed = Resource | Share | ResidualBandwidth  # what work may have to occupy


# Both ports have to be free at once. Sender busy 0-2, receiver busy 3-4:
#
#     sender    ##  ++        the gap 2-3 is too short for a copy of 2
#     receiver     #++        so it starts at 4


def earliest(resources: Sequence[Needed], ready: int, duration: int) -> int:
    """Return the earliest time at which all resources are free at once.

    Args:
        resources: What has to be free.
        ready: The earliest time that is asked for.
        duration: For how long all have to be free from then on.
    """
    start = ready
    moved = True
    while moved:
        moved = False
        for resource in resources:
            free = resource.earliest(start, duration)
            if free > start:
                start = free
                moved = len(resources) > 1
    return start


# A copy takes 6 if the port is free. Others take a quarter of the port, up to
# 4. What is left is 3/4, so that it takes 6 / (3/4) = 8:
#
#     1/4      ####
#     residual ++++++++       it goes on at 3/4: it is not sped up again


def earliest_fit(
    resources: Sequence[Needed], ready: int, duration: int
) -> tuple[int, int]:
    """Return where work fits in: its start, and how long it takes there.

    Nothing is occupied by this.

    Args:
        resources: What the work occupies.
        ready: The earliest time at which it may start.
        duration: What it takes with all of the resources to itself.
    """
    if not resources:
        return ready, duration
    only = resources[0]
    if len(resources) == 1 and type(only) is Resource:  # nothing slows it
        return only.earliest(ready, duration), duration
    residuals = [
        x.resource for x in resources if isinstance(x, ResidualBandwidth)
    ]
    longer = duration
    while True:
        start = earliest(resources, ready, longer)
        room = min([x.room(start, longer) for x in residuals], default=FULL)
        slowed = -(-duration * FULL // room)
        if slowed <= longer:
            return start, slowed
        longer = slowed
