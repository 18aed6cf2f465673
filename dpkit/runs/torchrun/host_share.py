"""Which part of a run GPUs spend waiting for their host.

A GPU waits for its host while it has nothing to do and the host is still at
the next launch::

    host    |launch|launch|launch|   |launch|
    GPU            |==|   |==|   |==========|
             idle      idle   ^             three launches that it waits for
                              computing while the host launches: no loss

Without launches these times are gone. So a step has two edges: as it was
simulated, and without them. A program whose launches are compiled into one,
or captured in a CUDA graph, lies between the two.

Not seen: a GPU that waits for another one, which waits for its own host.
"""

from collections.abc import Iterable

from dpkit.sim.clock import Span
from dpkit.sim.timeline import covered
from dpkit.units import show_seconds

LEAST_SHARE = 0.05  # of a step, from which on the host is named


def seconds_waiting(host: Iterable[Span], gpu: Iterable[Span]) -> float:
    """Return how long a host launches while a GPU has nothing to do.

    Args:
        host: The spans of the host.
        gpu: Those of the GPU; for a host with several, those of all.

    Example:
        The picture above, with launches of 2 seconds:

        >>> launches = [(0, 2), (2, 4), (4, 6), (7, 9)]
        >>> host = [Span("host:0", "python", "mm", "launch", *when)
        ...         for when in launches]
        >>> gpu = [Span("sim:0", "compute", "mm", "compute", *when)
        ...        for when in ((2, 3), (4, 5), (6, 9))]
        >>> seconds_waiting(host, gpu)
        4.0
    """
    launches = [span for span in host if span.kind == "launch"]
    work = list(gpu)
    # What either covers, less what the GPU covers, is the host's alone.
    return covered(launches + work) - covered(work)


def lines(seconds: float, share: float) -> list[str]:
    """Return what to say of a step of which GPUs wait for such a share.

    Args:
        seconds: What the step takes.
        share: The part of it in which GPUs wait for launches.

    Example:
        >>> (line,) = lines(0.25, 0.6)
        >>> line
        'about 100 ms if launches took no time (GPUs wait for them for 60%)'
    """
    if share < LEAST_SHARE:
        return []
    without = show_seconds(seconds * (1 - share))
    return [
        f"about {without} if launches took no time "
        f"(GPUs wait for them for {share:.0%})"
    ]
