"""The check that refuses a wrong schedule, and says why.

A schedule is right if every action is done once and each stage is on one
device. Going through their lists in order, the devices must come to the end:
no action waits for one that never comes.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice, product

from dpkit.theory.pipelines.actions import Action, Schedule, Triple, owners


def needs(action: Triple, num_stages: int, split: bool) -> list[Triple]:
    """Return the actions that must be done before ``action``.

    ``split``: whether the schedule splits backward into I and W.
    """
    stage, kind, m = action
    if kind == "F":
        return [(stage - 1, "F", m)] if stage else []
    if kind == "W":
        return [(stage, "I", m)]
    if stage == num_stages - 1:
        return [(stage, "F", m)]
    return [(stage, "F", m), (stage + 1, "I" if split else "B", m)]


def check(
    schedule: Schedule,
    num_stages: int | None = None,
    num_micro_batches: int | None = None,
) -> list[Action]:
    r"""Refuse a wrong schedule; return its actions in an order that works.

    There are as many stages and micro-batches as the schedule names, unless
    their numbers are given.

    Raises:
        ValueError: an action is missing, there twice, or waits for one that
            never comes; a stage is on two devices.

    Example:
        >>> from dpkit.theory.pipelines.actions import parse
        >>> from dpkit.theory.pipelines.schedules import gpipe
        >>> print(*check(gpipe(2, 1)))
        0F0 1F0 1B0 0B0
        >>> check(parse("0F0 0B0\n1B0 1F0"))
        Traceback (most recent call last):
        ...
        ValueError: 1B0 waits for 1F0, which comes after it on device 1
    """
    found = steps(schedule, num_stages, num_micro_batches)
    return [action for _, action, _ in found]


def steps(
    schedule: Schedule,
    num_stages: int | None = None,
    num_micro_batches: int | None = None,
) -> Iterator[tuple[int, Action, list[Triple]]]:
    """Yield device, action and what it needed, in an order that works."""
    every = [action for row in schedule for action in row]
    if num_stages is None:
        num_stages = 1 + max((a[0] for a in every), default=-1)
    if num_micro_batches is None:
        num_micro_batches = 1 + max((a[2] for a in every), default=-1)
    split = any(a[1] in "IW" for a in every)
    _check_once(every, num_stages, num_micro_batches, split)
    _check_devices(schedule)
    return _run(schedule, num_stages, split)


def _run(
    schedule: Schedule, num_stages: int, split: bool
) -> Iterator[tuple[int, Action, list[Triple]]]:
    """Move each device on as far as it can go, until all are done."""
    # GPipe of two stages and one micro-batch:
    #
    #     device 1 is awake   needs 0F0     sleeps until 0F0 is done
    #     device 0 is awake   0F0           wakes device 1
    #                         needs 1B0     sleeps until 1B0 is done
    #     device 1 is awake   1F0 1B0       wakes device 0
    #     device 0 is awake   0B0           all done
    done: set[Triple] = set()
    places = [0] * len(schedule)
    sleeping: dict[Triple, list[int]] = {}  # what devices wait for
    awake = list(reversed(range(len(schedule))))
    while awake:
        device = awake.pop()
        for action in islice(schedule[device], places[device], None):
            needed = needs(action, num_stages, split)
            missing = next((a for a in needed if a not in done), None)
            if missing:
                sleeping.setdefault(missing, []).append(device)
                break
            yield device, action, needed
            done.add(action)
            places[device] += 1
            if action in sleeping:
                awake += sleeping.pop(action)
    if sleeping:
        _refuse(schedule, sleeping, places)


def _check_once(
    every: list[Action], num_stages: int, count: int, split: bool
) -> None:
    """Refuse actions that are missing, surplus, or there twice."""
    found = Counter(every)
    kinds = "FIW" if split else "FB"
    wanted = dict.fromkeys(product(range(num_stages), kinds, range(count)), 1)
    if found == wanted:
        return
    for action, times in found.items():
        if action.stage >= num_stages or action.micro_batch >= count:
            raise ValueError(
                f"{action} is out of range (stages: {num_stages}, "
                f"micro-batches: {count})"
            )
        if times > 1:
            raise ValueError(f"{action} is there {times} times")
    for plain in wanted:
        if plain not in found:
            raise ValueError(f"{Action(*plain)} is missing")
    whole = next(action for action in found if action not in wanted)
    raise ValueError(
        f"{whole} is done whole and in halves (with {whole.stage}I"
        f"{whole.micro_batch})"
    )


def _check_devices(schedule: Schedule) -> None:
    """Refuse a stage on two devices: its weights lie on one."""
    found: dict[int, int] = {}
    for device, actions in enumerate(schedule):
        for stage in sorted({action.stage for action in actions}):
            owner = found.setdefault(stage, device)
            if owner != device:
                raise ValueError(
                    f"a stage is on two devices (stage: {stage}, devices: "
                    f"{owner} and {device})"
                )


def _refuse(
    schedule: Schedule, sleeping: dict[Triple, list[int]], places: list[int]
) -> None:
    """Raise ValueError with the reason why the devices do not finish."""
    # A device that sleeps waits for an action of another that sleeps, or for
    # its own action further on. Follow the waits until a device comes back:
    #
    #     device 0    waits at 0B0 for 1B0, an action of device 1
    #     device 1    waits at 1F1 for 0F1, an action of device 0: comes back
    awaited = {r: action for action in sleeping for r in sleeping[action]}
    owner = owners(schedule)
    waiting = device = min(awaited)
    seen: set[int] = set()
    while device not in seen:
        seen.add(device)
        waiting, device = device, owner[awaited[device][0]]
    action, needed = schedule[waiting][places[waiting]], awaited[waiting]
    if device == waiting:
        raise ValueError(
            f"{action} waits for {Action(*needed)}, which comes after it on "
            f"device {device}"
        )
    other = schedule[device][places[device]]
    raise ValueError(
        f"{action} on device {waiting} waits for {Action(*needed)}, but "
        f"device {device} waits at {other}: neither goes on"
    )
