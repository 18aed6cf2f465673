"""The time that a schedule takes: its actions, replayed.

Each device goes through its list in order. An action starts when its device
is free and what it needs is done; what comes from another device arrives a
hop later. Two stages, F of 1 s, B of 2 s, a hop of 1 s::

    device 0 | 0F0                 0B0 0B0
    device 1 |         1F0 1B0 1B0
                   hop             hop
"""

from collections.abc import Callable, Mapping

from dpkit.theory.clock.record import Span
from dpkit.theory.pipelines.actions import KIND_NAMES, Action, Schedule, Triple
from dpkit.theory.pipelines.check import steps
from dpkit.theory.timeline.timeline import Timeline

Seconds = Mapping[str, float] | Callable[[Action], float]


def replay(
    schedule: Schedule,
    seconds: Seconds,
    hop_seconds: float = 0.0,
    label: str = "replayed",
) -> Timeline:
    """Give every action of a schedule its time.

    Sending takes the time of a hop but holds up no device, and any number of
    micro-batches may be on their way at once. For transfers that occupy links
    and launches that occupy a host, run the schedule on simulated devices.

    ``seconds`` is how long an action takes: by its kind, or as a function of
    the action. Its result is ``hop_seconds`` on the way to another device.

    Raises:
        ValueError: the schedule is wrong, or a time is negative or missing.

    Example:
        >>> from dpkit.theory.pipelines.schedules import gpipe
        >>> replay(gpipe(2, 3), {"F": 1.0, "B": 2.0}).makespan
        12.0
    """
    ends = times(schedule, seconds, hop_seconds)
    spans = [
        Span(f"device {r}", "compute", str(a), KIND_NAMES[a.kind], *ends[a])
        for r, actions in enumerate(schedule)
        for a in actions
    ]
    spans.sort(key=lambda span: span.start)
    return Timeline(spans, label=label)


def times(
    schedule: Schedule, seconds: Seconds, hop_seconds: float = 0
) -> dict[Triple, tuple[float, float]]:
    """Return when each action starts and ends, as plain numbers.

    They are exact where the seconds are integers or fractions.
    """
    if hop_seconds < 0:
        raise ValueError(f"a hop takes time (hop_seconds: {hop_seconds})")
    duration = seconds if callable(seconds) else _by_kind(seconds)
    free: list[float] = [0] * len(schedule)  # when each device is
    found: dict[Triple, tuple[float, float]] = {}
    owner: dict[int, int] = {}  # the device of each stage
    for device, action, needed in steps(schedule):
        owner[action.stage] = device
        start = free[device]
        for other in needed:
            arrival = found[other][1]
            if owner[other[0]] != device:
                arrival += hop_seconds
            start = max(start, arrival)
        free[device] = end = start + duration(action)
        if end < start:
            raise ValueError(
                f"an action takes time (action: {action}, seconds: "
                f"{end - start})"
            )
        found[action] = start, end
    return found


def _by_kind(seconds: Mapping[str, float]) -> Callable[[Action], float]:
    """Return a function of the action, which refuses unknown kinds."""

    def duration(kind: str) -> float:
        if kind not in KIND_NAMES or seconds.get(kind, -1.0) < 0:
            raise ValueError(
                f"no duration of an action (kind: {kind!r}, seconds: "
                f"{dict(seconds)}); the kinds are {', '.join(KIND_NAMES)}"
            )
        return seconds[kind]

    for kind in seconds:
        duration(kind)
    return lambda action: duration(action.kind)
