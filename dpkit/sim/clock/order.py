"""What happens before what: Lamport's order of the work of streams and hosts.

It does not ask when things happen, only what the program makes sure of. The
operations of each stream are numbered. A *past*, a vector clock, has for
every stream the number of the last operation there that has certainly ended::

    stream 0       a = 1, b = 2, event recorded, c = 3
    past of what comes next in stream 0      {0: 3}
    past of the event                        {0: 2}
    past of stream 1, which waits for it     {0: 2}    after b, not after c
    past of stream 2, which does not         {}        after nothing

A host has a past, too: that of what it has waited for. All that it issues
comes after that.
"""

from collections.abc import Callable, Sequence

from dpkit.sim.clock.queues import Stream

Past = dict[Stream, int]


def join(past: Past, other: Past) -> None:
    """Add what is in another past to a past."""
    for stream, number in other.items():
        if past.get(stream, 0) < number:
            past[stream] = number


class HappensBefore:
    """The pasts of all streams and hosts.

    ``host_of`` tells the number of the host that drives a device.

    Example:
        >>> from dpkit.sim.clock.order import HappensBefore
        >>> order = HappensBefore(1, host_of=lambda device: 0)
        >>> compute, side, other = (0, 0), (0, 1), (0, 2)
        >>> order.issue([compute])
        {(0, 0): 1}
        >>> order.stream_waits(side, order.past(compute))
        >>> order.past(side), order.past(other)
        ({(0, 0): 1}, {})
        >>> order.host_waits(0, order.past(side))
        >>> order.past(other)
        {(0, 0): 1}
    """

    def __init__(self, num_hosts: int, host_of: Callable[[int], int]) -> None:
        self._host_of = host_of
        self._streams: dict[Stream, Past] = {}
        self._hosts: list[Past] = [{} for _ in range(num_hosts)]
        # The past of the host that a stream has joined last.
        self._joined: dict[Stream, Past] = {}

    def past(self, stream: Stream) -> Past:
        """Return the past of what is issued to a stream now."""
        past = self._streams.setdefault(stream, {})
        host = self.past_of_host(stream[0])
        if self._joined.get(stream) is not host:
            join(past, host)
            self._joined[stream] = host
        return past

    def past_of_host(self, device: int) -> Past:
        """Return what the host of a device has waited for."""
        return self._hosts[self._host_of(device)]

    def past_of_device(self, device: int) -> Past:
        """Return all that has been issued to a device."""
        past: Past = {}
        for stream, of_stream in self._streams.items():
            if stream[0] == device:
                join(past, of_stream)
        return past

    def issue(self, streams: Sequence[Stream]) -> Past:
        """Number an operation in some streams, which wait for each other.

        Return the past of what comes after it.
        """
        pasts = [self.past(stream) for stream in streams]
        for past in pasts[1:]:
            join(pasts[0], past)
        for stream in streams:
            pasts[0][stream] = pasts[0].get(stream, 0) + 1
        for past in pasts[1:]:
            past.update(pasts[0])
        return pasts[0]

    def stream_waits(self, stream: Stream, past: Past) -> None:
        """Put all of a past before what is issued to a stream from now on."""
        join(self.past(stream), past)

    def host_waits(self, device: int, past: Past) -> None:
        """Put all of a past before what the host of a device does now."""
        # A new one, by which streams see that there is something to join.
        host = self._host_of(device)
        self._hosts[host] = dict(self._hosts[host])
        join(self._hosts[host], past)

    def join_hosts(self, devices: Sequence[int]) -> None:
        """Make the hosts of some devices wait for each other.

        What each of them has waited for is then in the past of all.
        """
        together: Past = {}
        for device in devices:
            join(together, self.past_of_host(device))
        for device in devices:
            self.host_waits(device, together)
