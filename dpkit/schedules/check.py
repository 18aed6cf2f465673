"""The check that refuses a wrong schedule, and says why.

A schedule is right if every action is done once and each stage is on one
device. Going through their lists in order, the devices must come to the end:
no action waits for one that is never done.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import product
from typing import cast

from dpkit.schedules.actions import (
    INPUT_GRADIENTS,
    SPLIT_KINDS,
    WEIGHT_GRADIENTS,
    WHOLE_KINDS,
    Action,
    Schedule,
    Triple,
    owners,
)
from dpkit.schedules.walk import needs, walk


def check(
    schedule: Schedule,
    num_stages: int | None = None,
    num_micro_batches: int | None = None,
) -> list[Action]:
    r"""Refuse a wrong schedule; return its actions in an order that works.

    Args:
        schedule: The actions of each device.
        num_stages: How many stages there must be; by default as many as the
            schedule names.
        num_micro_batches: The same of micro-batches.

    Raises:
        ValueError: an action is missing, there twice, or waits for one that
            is never done; a stage is on two devices.

    Example:
        >>> from dpkit.schedules.actions import parse
        >>> from dpkit.schedules.named import gpipe
        >>> print(*check(gpipe(2, 1)))
        0F0 1F0 1B0 0B0
        >>> check(parse("0F0 0B0\n1B0 1F0"))
        Traceback (most recent call last):
        ...
        ValueError: 1B0 waits for 1F0, which comes after it on device 1
    """
    every = [action for row in schedule for action in row]
    if num_stages is None:
        num_stages = 1 + max((a[0] for a in every), default=-1)
    if num_micro_batches is None:
        num_micro_batches = 1 + max((a[2] for a in every), default=-1)
    split = is_split(schedule)
    _check_once(
        every, num_stages=num_stages, count=num_micro_batches, split=split
    )
    check_devices(schedule)
    done = walk(schedule, owners(schedule), split=split)
    if len(done) < len(every):
        _refuse(schedule, done, split)
    return cast(list[Action], list(done))  # those of the schedule


def steps(schedule: Schedule) -> Iterator[tuple[int, Action, list[Triple]]]:
    """Yield the actions of a schedule, in an order that works.

    Yields:
        The number of the device, its action, and the actions that had to be
        done before it.

    Raises:
        ValueError: the schedule is wrong, as :func:`check` says.
    """
    order = check(schedule)
    owner = owners(schedule)
    split = is_split(schedule)
    for action in order:
        yield owner[action.stage], action, needs(action, len(owner), split)


def is_split(schedule: Schedule) -> bool:
    """Return whether a schedule splits backward into I and W."""
    halves = (INPUT_GRADIENTS, WEIGHT_GRADIENTS)
    return any(action[1] in halves for row in schedule for action in row)


def _check_once(
    every: list[Action], *, num_stages: int, count: int, split: bool
) -> None:
    """Refuse actions that are missing, surplus, or there twice."""
    found = Counter(every)
    kinds = SPLIT_KINDS if split else WHOLE_KINDS
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


def check_devices(schedule: Schedule) -> None:
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


def _refuse(schedule: Schedule, done: Collection[Triple], split: bool) -> None:
    """Raise ValueError with the reason why the devices do not finish."""
    # Each waits at an action, for an action of another device that waits or
    # for its own further on. Follow the waits until a device comes back:
    #
    #     device 0    waits at 0B0 for 1B0, an action of device 1
    #     device 1    waits at 1F1 for 0F1, an action of device 0: comes back
    owner = owners(schedule)
    left = [[a for a in row if a not in done] for row in schedule]
    at = {r: actions[0] for r, actions in enumerate(left) if actions}
    awaited = {
        r: next(n for n in needs(a, len(owner), split) if n not in done)
        for r, a in at.items()
    }
    waiting = device = min(awaited)
    seen: set[int] = set()
    while device not in seen:
        seen.add(device)
        waiting = device
        device = owner[awaited[device][0]]
    needed = Action(*awaited[waiting])
    if device == waiting:
        raise ValueError(
            f"{at[waiting]} waits for {needed}, which comes after it on "
            f"device {device}"
        )
    raise ValueError(
        f"{at[waiting]} on device {waiting} waits for {needed}, but "
        f"device {device} waits at {at[device]}: neither goes on"
    )
