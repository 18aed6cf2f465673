"""A schedule, gone through: in which order its actions are done, and when.

Each device goes through its list. An action starts when its device is free
and what it needs is done; what another device has done arrives a hop later.
"""

from collections.abc import Callable, Mapping

from dpkit.schedules.actions import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    WEIGHT_GRADIENTS,
    Action,
    Schedule,
    Triple,
)

Marks = dict[Triple, tuple[float, float]]  # when an action starts and ends


def needs(action: Triple, num_stages: int, split: bool) -> list[Triple]:
    """Return the actions that must be done before ``action``.

    ``split``: whether the schedule splits backward into I and W.
    """
    stage, kind, m = action
    if kind == FORWARD:
        return [(stage - 1, FORWARD, m)] if stage else []
    if kind == WEIGHT_GRADIENTS:
        return [(stage, INPUT_GRADIENTS, m)]
    if stage == num_stages - 1:
        return [(stage, FORWARD, m)]
    sender = INPUT_GRADIENTS if split else BACKWARD
    return [(stage, FORWARD, m), (stage + 1, sender, m)]


def walk(
    schedule: Schedule,
    owner: Mapping[int, int],
    *,
    split: bool,
    seconds: Callable[[Action], float] = lambda action: 0,
    hop_seconds: float = 0,
) -> Marks:
    """Return when each action starts and ends, in an order that works.

    It goes as far as the devices can go: of a wrong schedule actions are left.

    Args:
        schedule: The actions of each device.
        owner: The device of each stage.
        split: Whether the schedule splits backward into I and W.
        seconds: How long an action takes.
        hop_seconds: What its result takes to another device.
    """
    # GPipe of two stages and one micro-batch:
    #
    #     device 1 is awake   needs 0F0     sleeps until 0F0 is done
    #     device 0 is awake   0F0           wakes device 1
    #                         needs 1B0     sleeps until 1B0 is done
    #     device 1 is awake   1F0 1B0       wakes device 0
    #     device 0 is awake   0B0           all done
    found: Marks = {}
    free: list[float] = [0] * len(schedule)  # when each device is
    reached = [0] * len(schedule)  # how far each has come
    sleeping: dict[Triple, list[int]] = {}  # what devices wait for
    awake = list(reversed(range(len(schedule))))
    while awake:
        device = awake.pop()
        actions = schedule[device]
        for i in range(reached[device], len(actions)):
            action = actions[i]
            start = free[device]
            for needed in needs(action, len(owner), split):
                times = found.get(needed)
                if times is None:
                    break
                arrival = times[1]
                if hop_seconds and owner[needed[0]] != device:
                    arrival += hop_seconds
                if arrival > start:  # max() would take longer
                    start = arrival
            else:  # nothing is missing
                free[device] = end = start + seconds(action)
                found[action] = start, end
                if action in sleeping:
                    awake += sleeping.pop(action)
                continue
            sleeping.setdefault(needed, []).append(device)
            reached[device] = i
            break
    return found
