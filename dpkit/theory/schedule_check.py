"""The check that refuses a wrong schedule, and says why.

A schedule is right if every action that has to be done is done once, on the
device of its stage, and if the devices, each going through its list in order,
come to the end: no action waits for one that never comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dpkit.theory.schedules import Action, Schedule


def needs(action: Action, num_stages: int, split: bool) -> list[Action]:
    """Return the actions that must be done before ``action``.

    Args:
        action: An action.
        num_stages: How many stages there are.
        split: Whether the schedule splits backward into I and W.

    Example:
        >>> [str(a) for a in needs(Action(1, "B", 0), 3, split=False)]
        ['1F0', '2B0']
    """
    stage, kind, m = action.stage, action.kind, action.micro_batch
    if kind == "F":
        return [Action(stage - 1, "F", m)] if stage else []
    if kind == "W":
        return [Action(stage, "I", m)]
    before = [Action(stage, "F", m)]
    if stage < num_stages - 1:
        before.append(Action(stage + 1, "I" if split else "B", m))
    return before


def check(
    schedule: Schedule, num_stages: int, num_micro_batches: int
) -> list[Action]:
    r"""Refuse a wrong schedule; return its actions in an order that works.

    Args:
        schedule: The actions of each device.
        num_stages: How many stages there are.
        num_micro_batches: How many micro-batches there are.

    Raises:
        ValueError: an action is missing, is there twice, belongs to no stage
            or micro-batch, or waits for one that never comes.

    Example:
        >>> from dpkit.theory.schedules import gpipe, parse
        >>> order = check(gpipe(2, 1), num_stages=2, num_micro_batches=1)
        >>> print(*order)
        0F0 1F0 1B0 0B0
        >>> check(parse("0F0 0B0\n1B0 1F0"), 2, 1)
        Traceback (most recent call last):
        ...
        ValueError: 1B0 waits for 1F0, which comes after it on device 1
    """
    _check_once(schedule, num_stages, num_micro_batches)
    split = any(a.kind == "I" for actions in schedule for a in actions)
    done: dict[Action, None] = {}
    places = [0] * len(schedule)
    progress = True
    while progress:
        progress = False
        for device, actions in enumerate(schedule):
            while places[device] < len(actions):
                action = actions[places[device]]
                if any(
                    a not in done for a in needs(action, num_stages, split)
                ):
                    break
                done[action] = None
                places[device] += 1
                progress = True
    _check_end(schedule, places, done, num_stages, split)
    return list(done)


def _check_once(schedule: Schedule, num_stages: int, count: int) -> None:
    """Refuse actions that are missing, surplus, or there twice."""
    found = Counter(a for actions in schedule for a in actions)
    for action, times in found.items():
        if action.stage >= num_stages or action.micro_batch >= count:
            raise ValueError(
                f"{action} is out of range (stages: {num_stages}, "
                f"micro-batches: {count})"
            )
        if times > 1:
            raise ValueError(f"{action} is there {times} times")
    for action in _wanted(found, num_stages, count):
        if action not in found:
            raise ValueError(f"{action} is missing")
    for action in found:
        split = Action(action.stage, "I", action.micro_batch) in found
        if action.kind == "B" and split:
            raise ValueError(
                f"{action} is done whole and in halves (with "
                f"{action.stage}I{action.micro_batch})"
            )


def _wanted(
    found: Counter[Action], num_stages: int, count: int
) -> Iterable[Action]:
    """Yield what has to be done: F and B, or F, I and W, of each."""
    split = any(action.kind in "IW" for action in found)
    for stage in range(num_stages):
        for m in range(count):
            for kind in "FIW" if split else "FB":
                yield Action(stage, kind, m)


def _check_end(
    schedule: Schedule,
    places: list[int],
    done: dict[Action, None],
    num_stages: int,
    split: bool,
) -> None:
    """Refuse a schedule whose devices do not come to the end.

    Each device that is stuck waits for an action of another that is stuck, or
    for one of its own further on. Along these waits the cause is found: the
    last device before the chain comes back.
    """
    stuck = [d for d, row in enumerate(schedule) if places[d] < len(row)]
    if not stuck:
        return
    device, seen = stuck[0], []
    while True:
        action = schedule[device][places[device]]
        needed = next(
            a for a in needs(action, num_stages, split) if a not in done
        )
        owner = next(d for d, row in enumerate(schedule) if needed in row)
        if owner == device:
            raise ValueError(
                f"{action} waits for {needed}, which comes after it on "
                f"device {device}"
            )
        seen.append(device)
        if owner in seen:
            other = schedule[owner][places[owner]]
            raise ValueError(
                f"{action} on device {device} waits for {needed}, but device "
                f"{owner} waits at {other}: neither goes on"
            )
        device = owner
