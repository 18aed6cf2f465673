"""The time that a schedule takes: its actions, replayed.

Each device goes through its list in order. An action starts when its device
is free and what it needs is done; what comes from another device arrives a
hop later. Two stages, F of 1 s, B of 2 s, a hop of 1 s::

    device 0 | 0F0                 0B0 0B0
    device 1 |         1F0 1B0 1B0
                   hop             hop
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import product

from dpkit.schedules.actions import (
    KIND_NAMES,
    SPLIT_KINDS,
    WHOLE_KINDS,
    Action,
    Schedule,
    Triple,
    owners,
)
from dpkit.schedules.check import check, check_devices, is_split
from dpkit.schedules.walk import Marks, walk
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline

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

    Args:
        schedule: The actions of each device.
        seconds: How long an action takes: a mapping from its kind, such as
            ``{"F": 1.0, "B": 2.0}``, or a function of the action.
        hop_seconds: What the result of an action takes to another device.
        label: The title of the timeline.

    Raises:
        ValueError: the schedule is wrong, or a time is negative or missing.

    Example:
        >>> from dpkit.schedules.named import gpipe
        >>> replay(gpipe(2, 3), {"F": 1.0, "B": 2.0}).makespan
        12.0
    """
    ends = times(schedule, seconds, hop_seconds)
    spans = [
        Span(
            device=f"device {r}",
            stream="compute",
            name=str(a),
            kind=KIND_NAMES[a.kind],
            start=ends[a][0],
            end=ends[a][1],
        )
        for r, actions in enumerate(schedule)
        for a in actions
    ]
    spans.sort(key=lambda span: span.start)
    return Timeline(spans, label=label)


def times(
    schedule: Schedule, seconds: Seconds, hop_seconds: float = 0
) -> Marks:
    """Return the start and the end of each action, in seconds.

    They are exact where the seconds are integers or fractions.

    Args:
        schedule: The actions of each device.
        seconds: How long an action takes, as for :func:`replay`.
        hop_seconds: What the result of an action takes to another device.

    Raises:
        ValueError: the schedule is wrong, or a time is negative or missing.
    """
    if hop_seconds < 0:
        raise ValueError(
            f"a hop cannot take negative time (hop_seconds: {hop_seconds})"
        )
    owner = owners(schedule)
    split = is_split(schedule)
    duration = _duration(seconds, schedule)
    found = walk(
        schedule, owner, split=split, seconds=duration, hop_seconds=hop_seconds
    )
    if not _is_whole(found, schedule, num_stages=len(owner), split=split):
        check(schedule)  # says what is wrong
    check_devices(schedule)
    return found


def _is_whole(
    found: Collection[Triple],
    schedule: Schedule,
    *,
    num_stages: int,
    split: bool,
) -> bool:
    """Return whether what was done is every action, each there once."""
    kinds = SPLIT_KINDS if split else WHOLE_KINDS
    count = sum(map(len, schedule))
    num_micro_batches, rest = divmod(count, max(num_stages, 1) * len(kinds))
    every = product(range(num_stages), kinds, range(num_micro_batches))
    once = len(found) == count and not rest
    return once and all(map(found.__contains__, every))


def _duration(
    seconds: Seconds, schedule: Schedule
) -> Callable[[Action], float]:
    """Return a function of the action, which refuses negative times."""
    if callable(seconds):
        return partial(_checked, seconds)
    for kind in [*seconds, *{a[1] for row in schedule for a in row}]:
        if kind not in KIND_NAMES or seconds.get(kind, -1.0) < 0:
            raise ValueError(
                f"no duration of an action (kind: {kind!r}, seconds: "
                f"{dict(seconds)}); the kinds are {', '.join(KIND_NAMES)}"
            )
    return lambda action: seconds[action[1]]


def _checked(seconds: Callable[[Action], float], action: Action) -> float:
    found = seconds(action)
    if found < 0:
        raise ValueError(
            "an action cannot take negative time (action: "
            f"{Action(*action)}, seconds: {found})"
        )
    return found
